// nibbles.cc: see nibbles.h.
namespace fp4scope {}
