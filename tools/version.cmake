# Writes OUTPUT from INPUT with the git revision of SOURCE, at build time so that a report never
# names an old commit. The file is only touched when its content changes. "unknown" without git, or
# when SOURCE is an unpacked archive inside some other repository.
set(FP4SCOPE_GIT "unknown")
find_package(Git QUIET)
if(GIT_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --show-toplevel
    WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE failed ERROR_QUIET)
  if(NOT failed)
    file(REAL_PATH "${top}" top)
    file(REAL_PATH "${SOURCE}" here)
    if(top STREQUAL here)
      execute_process(COMMAND ${GIT_EXECUTABLE} describe --always --dirty
        WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE
        RESULT_VARIABLE failed ERROR_QUIET)
      if(NOT failed AND revision)
        set(FP4SCOPE_GIT "${revision}")
      endif()
    endif()
  endif()
endif()
configure_file(${INPUT} ${OUTPUT} @ONLY)
