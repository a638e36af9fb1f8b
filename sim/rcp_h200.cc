// rcp_h200.cc: data/rcp/rcp_approx_h200.xz as bytes of the program.
__asm__(
    ".section .rodata\n"
    ".global fp4scope_rcp_h200_xz\n"
    ".global fp4scope_rcp_h200_xz_end\n"
    "fp4scope_rcp_h200_xz:\n"
    ".incbin \"" FP4SCOPE_RCP_H200_FILE
    "\"\n"
    "fp4scope_rcp_h200_xz_end:\n"
    ".byte 0\n"
    ".previous\n");
