// options.h: every choice that can change a bit of a code or scale, as plain data. A contract is a
// named value of one of these structs (mx.h, nvfp4.h, hif4.h, int4.h, fp8.h beside this file); a
// recipe starts from a contract and overrides single fields. No arithmetic here: the exact oracle
// includes these headers.
#pragma once
#include "formats/contracts/common_options.h"
#include "formats/contracts/fp8_options.h"
#include "formats/contracts/hif4_options.h"
#include "formats/contracts/int4_options.h"
#include "formats/contracts/mx_options.h"
#include "formats/contracts/nvfp4_options.h"
