fp4scope_test(readers_shared_test LABEL shared SOURCES readers_shared_test.cc LIBS fp4scope_io)
