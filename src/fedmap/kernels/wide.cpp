// blocks.cpp with 16 floats in a register, for processors with AVX-512.

#ifdef __AVX512F__
#define LANES 16
#include "blocks.cpp"
#endif
