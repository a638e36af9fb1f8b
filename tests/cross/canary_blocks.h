// canary_blocks.h: the blocks of canary_test.cc. `choice` is that of the exact oracle (1:
// map-to-4); BF16 values have four hex digits, binary32 values eight. Generated once by a search; a
// block may be added or removed, never edited. flashinfer runs with ftz=off: a flush between a
// product and a sum keeps a compiler from contracting them.
#pragma once
#include <span>
#include <string_view>

namespace fp4scope::test {

enum class CanaryMetric { kAmax, kDecode, kFast };
struct CanaryBlock {
  int choice;
  std::string_view amax;  // of the tensor, binary32 bits
  std::string_view x;
};
struct CanaryCase {
  std::string_view recipe;  // amax comes with the block
  float m;                  // ceiling of the block scale
  CanaryMetric metric;
  bool is_mse;
  std::span<const CanaryBlock> blocks;
};

// te, mse, BF16
inline constexpr CanaryBlock kTeMse[] = {
    {1, "0x409b0000", "be243f04bf38bf9abf3b3cbdbf073d6a3ea4bef33f7bbf63bcf340193f593e9b"},
    {1, "0x409b0000", "bf783ee03f1dbf1a401b3ece3f14bfb6bf10bf8c3e9dbf72be47be9c3f233e09"},
    {1, "0x40aa0000", "bee1bc643f2ebefe3d3f3fe33e54bfd63f6f3e79beb03e053eb23f163f3e3fef"},
    {1, "0x409b0000", "3f753f8b3e87beadbeecbf0abd67bb22be99bf8bbef8bfb63eb4c01b3f873fda"},
    {1, "0x40aa0000", "beedbf393ed83dee3f02bd32bc8e3ea13d3a3f1e3f3e3f1a3fb6be88be1abe73"},
    {1, "0x409b0000", "c007becdbfbdbf28c009bf173f643f13be83bfea3fa03f2d3e32bd763e45be70"},
    {0, "0x40aa0000", "3ec03f9c3efebde9bf033f823e0f3fcabfefbf26be753fb73dfabf813e843e1a"},
    {0, "0x40aa0000", "bebcbf723e9abe1ec0273e72bf9fbf193f853f3f3f153eb8bf85bd383f9f3fcb"},
    {0, "0x40aa0000", "bfa340263f1a3ea13f903d4d3c5dbfacbe0cbf91be3ebfcb3f653fa5bc573f85"},
    {0, "0x40aa0000", "bf17bf18bf813e0f3fc63f063e1e3fb23ed2bf084022c04cbd933f103dfe3f35"},
    {0, "0x409b0000", "3f5ebfb7bf933ea23dd6c020bf0cbfb13e9cbe6440213f7ebf1fbe28bfb6bf07"},
    {0, "0x40aa0000", "3f97be9f3f1d4008bf61be1ebf1f4044bfa23e42bce6bfdf3ea6bf68bdc3bef1"},
};
// flashinfer, mse, BF16
inline constexpr CanaryBlock kFlashinferMse[] = {
    {1, "0x40960000", "4012bf5a3fadbf18bfe6bf4bbfca3eadc0313dd9bdfec0193f653fadbfb63eb6"},
    {1, "0x40960000", "bf0bbf9e3fda3efc3f99bee0bf303eacbdfc3e83bfa53d8fbf694037bf5a3fb7"},
    {1, "0x409b0000", "3e97bf413f67c02fbe423fb5bfce3f963f39bf19bf5fc010bf0d3f68bfd93ea4"},
    {1, "0x40a20000", "be8dc00ebd483c43be26bdb2bec13eadbf4cbff93f00bf60bf6ebd813f2ebf8b"},
    {1, "0x40aa0000", "bfedbe4a3f64bfacbf01bf92beba3f17bf85bf97bfea3f88bd40bd5140033d5a"},
    {1, "0x40a20000", "3e37be28bf92bf1b3fb83ee4be69c007be09bf87bf1ebe663fdf3f673f2cbec0"},
    {0, "0x40960000", "3f6a3fb9bc9abdb83f29bf91bf33bf02bf9c4005bfc6bdd6bf37bfbf3e1abf1f"},
    {0, "0x409b0000", "be97bf56be573e3e3e59bf553f26bed2bf8fc009bffabf88bf00bfb5bf49bf66"},
    {0, "0x40960000", "bf86bebb3f03bcbebe8fbf48bf1cbed1bf573f843f203f923ea6bfa0be00c041"},
    {0, "0x40960000", "bf343e8cbf743f773ed5c0173f98beb5bea2bf75bf66bf4dbfb03f89bfd63fbe"},
    {0, "0x40a20000", "3e83bf5dbf79bf0b3f693f2fbfa23ec83f4dbf773e913eae3fc53fa93e993f57"},
    {0, "0x40960000", "3deebf6a3e7abe04bf8b3fd4be01bf2dbf4e3f4c3ec9bf4cbf41bd013fa93ecd"},
};
// flashinfer, mae, BF16
inline constexpr CanaryBlock kFlashinferMae[] = {
    {1, "0x40960000", "bfa53f433f084004bc643f0c3e1c3f42bf8f3ee4bfeabef93f0bbf0e3f45bf03"},
    {1, "0x40960000", "bf3e3f6e3e20bf97bcfabedbbeb4bebcbf263ed13fa23f1c4024bf42402bbf8a"},
    {1, "0x40aa0000", "3e0abf25be0f3f3d3ef73eb6bf56bf003f7a3f3ebef93f72bea3bf49bfdd4007"},
    {1, "0x40a20000", "3e8f3f56be193f023fb0bf8d400f3d2e3fdc3f29beef3d4c3f5b3e583f76bed3"},
    {1, "0x40960000", "c014bf0bbf913fa8bf033e88bf833f283fcabeaabf4bbf9cbea6befebf3ac009"},
    {1, "0x40a20000", "bc9abeef3f563f3fbf3cbeb03a373e9c3ecb3edbbcabbe42bf0fbeec3e953f87"},
    {0, "0x40a20000", "bf693e8cbed34015bfbcc028bf84bea0bede3edbbf133fcfc0133f36bdbd3f9f"},
    {0, "0x40960000", "3eb3bd3fbf543f533fd0bfc23ec93fa7bf28bf69bb593fbfbed43f07be913df0"},
    {0, "0x40960000", "bff7bebe3f7fbf0cbf91bf90beecbf523e2b3eb9bfe43f8ebf7abbae3f923fc2"},
    {0, "0x40a20000", "3f07bdb8bfcbbf193f183f973ecfbf1d3f913e5ebd44be85bf003eeebf683f05"},
    {0, "0x40a20000", "beaf3fd8beac3f3ebfa83f963dac3fd3bff13c8fbf7b3f64bf80bf24bfec3ff7"},
    {0, "0x40960000", "bf07bf514044bfe73f903e143f20bda43fc3be84c0163eac3f353db93fb1bd9f"},
};
// flashinfer, mae, binary32
inline constexpr CanaryBlock kFlashinferMaeF32[] = {
    {1, "0x40a20000",
     "3f67a681bf54e3d6bfc536a53f84f3e2befcbebc3fb96b783f84d1c4bf52f452"
     "3f237223bf7f7b3ebf6d4ad13f3764e23f9f7f243d05bb19be4c20cb3f9e04ef"},
    {1, "0x409b0000",
     "3fc92f373d9f9c9fbf95a64abf6516bd3f8245dfbf5b57a0bfe984e03e18eedf"
     "bf77d4253f630339bf3dfc48bf374c9e3f00a65f3ee98877bdf9d3b03ff59e20"},
    {1, "0x40a20000",
     "c011b66dbfff4f20bfa696203fa61e05bfd2e46b3e1590c2bf6635e03f263fbc"
     "3fe7761b3f85f13a3f3c2bc73fa8ccd93ded9ad63f7b61ccbf4d9f563f31cfa7"},
    {1, "0x40960000",
     "bf4da4423eb4f556bf8f558d3f7fa8b8bf4c5c523f853b89beae7a833fd046b3"
     "bd8288fc3fa1241c3cc54841bfe36f2fbffb5b093f54b87c3f247f583f856983"},
    {1, "0x40960000",
     "3e8519023e80d487bfb879f43f0ec123bedc02bc3f58ca0ebc300c47bfa82d86"
     "3cc522ca3d225c3ebdbb2e70bfa78e463f39108e3f5cc6c33d509f1f3f2405e5"},
    {1, "0x40960000",
     "3f0e5aeebf0afff1400c3aafc00d0d9e3fc9fd0b3f9a2ae3402179d63f8cbddb"
     "bf78503f3f1a8ff93f49f2adbfb6d28e3f7e61b9be9eed7d3ee7cedebfa8f120"},
    {0, "0x40aa0000",
     "bf73abfa3f86fcc73f8e2c3f3ff913e7bf6be807bcfe2936bf57071dbf2f0bee"
     "bf538df33ef7fc6abf0ee84f3f63a4d5c00731dfbe31af5f3da35b77bf16cce1"},
    {0, "0x409b0000",
     "3e06cf5f3e31169dbf5a77433f96f9f84001de18bf96e0873f575d18bd41e773"
     "3f72d94f3f5caa6dbf84861ebf48c15b3f12030b4003f6f1be0990513f2bc533"},
    {0, "0x40aa0000",
     "bddf14afbf45418e3f893df73f68e2d13cf7c749bfced3c33f6f46d63ef249ff"
     "3fa7cc2e3f104366becce2a1bfc043773ec1827abf35e2e33f62954c3edb5127"},
    {0, "0x40a20000",
     "3fe0b884bfc02e8d3f860eb2bf989bd8bf64ceb33f1559b8bec98fd4bd18a276"
     "bf5372773ef1e29bbf6c899dbf3dacadbed930a33f4d73cabfcaf1973fe8bfa3"},
    {0, "0x40a20000",
     "bfa26939bd87441fbf8358fdbf3c1bcbbf82a96ebf565c24bf1354353f4250dd"
     "bf4633adbf9a03de3fe5dfee3dda28cebc4020d84027daf0bf3c740abf22d5b2"},
    {0, "0x40960000",
     "bdfdf0c93fd3b8cb3faf76543e9126ff3ef58346bf4966ab3fcb581a3f47f7e7"
     "bd10341abf06b8aabfa395503f4a67143ec0289b3ee9d7eebdf5d4783ceea4c7"},
};
// te, mse, binary32
inline constexpr CanaryBlock kTeMseF32[] = {
    {1, "0x40aa0000",
     "bf8c56473fa1398a3f077f10bf134f9abf10a878bf15d38d3e8e46c33f930765"
     "3eaa24313e6ad3133f733dcebf918ccb3ffe69e33fe9bfd4bfe5b0b13fc9086a"},
    {1, "0x40aa0000",
     "bf833bcebf4e95a9bf8d3cfe3eef52253cf166acbf5f1b8b40036563bee4e9c8"
     "3f6b2a273d304e723f614ab93fac2fe9be59be29bdfb03f03f4f4ec7bcbafd93"},
    {1, "0x40aa0000",
     "3fb6d69dbf3e222bbf14dd00be55d4d2bf306cccbf935d6abf967794be839819"
     "bedd25c83effe70dbe92cbb13f19cb0d3ffe0552bf93c609bd092b39bfe41b31"},
    {1, "0x409b0000",
     "be604b0bbf732d22beb199113e1e0abe3e8ecb84bf20b2da3e87c2ec3f82c548"
     "c01432cb3f60b96a3fbc7d253f0f9cc43f4f075c3f7082883fc63507bf074264"},
    {1, "0x40960000",
     "3f9287503fddfa8a3fb7c28dbe5e410a3f4dc6aa3f4f14fdbf6c89fec000ff48"
     "bfac324a3da4aaf73fbcba803f89ea1fbff76783400ef5d0be1140a13f78696c"},
    {1, "0x40aa0000",
     "3f227274bece6116be9ac3a3c00f2959bf2f2533beb31ae13f6b0ca73f8b9fc6"
     "3fc3a68f3ea8c798bc5c944abf3bc5393f53334fbf0de574bf6ecdf4be85d250"},
    {0, "0x40aa0000",
     "bfcc417a3ecadc6c3e2254443f56877d3ea070f0c0112d423e92234cbea1f6e3"
     "be004e8f3d2de84cbe90030e3f3be9a53fdc44a53fdadf423f41b2e83facf6c8"},
    {0, "0x40aa0000",
     "bf01043e3e7ade653e80c36e3f736621bfbc7f51400bb9383efc2a91be7caabe"
     "bea87c41bf8455a43fd694c03f8eaca83fbac68abe8dd6c63f1ecc4d3e773a12"},
    {0, "0x40960000",
     "3cd64aa63f35cfe23e2352a8bf6e2bbc3fa56bebbf45be613ffcc23fbf15df94"
     "bf74645ebf33b1acbfbd56073f82ce504029b733befc7e243e47f08c3ec220e0"},
    {0, "0x40960000",
     "c01ee9293e15a1673e2790b23f1d32a23d67fbb83f9d3444bfbd673ebfb00c03"
     "3cb39e0ac007abfebf2f57c0bf7f3c613fa8cc11bec601243d84074f3f51a8dd"},
    {0, "0x409b0000",
     "3fadaf91bf88bd7ebe15ad11bf22e87ebf89cb713f37d6973f4d07d6beb9e74e"
     "3dc5b7e33f7136aebd9701143f709846bdb9558abe16fdc3bfba9c613f03574e"},
    {0, "0x40aa0000",
     "be1ee1d8bd8a50183ed1f07a405351eb3fd1bdea3efa7be53f0499be3f897041"
     "bef750db3d5342dbbfe4c7bdbea2debfbfb09c293f9c4a623e6f9a02bd4a18f2"},
};
// te, mse, fast metric, BF16
inline constexpr CanaryBlock kTeFastMse[] = {
    {1, "0x40a20000", "bd423fb43f1cbf4f3fad3f9e3f953ea0401d3f1dbf70bf61bfacbea1be4e3e95"},
    {1, "0x409b0000", "bfb5bf603deec018bf2e3fa73f733f9abede3f9f3f073f66bf79bd553e263e05"},
    {1, "0x40a20000", "3ed63f8f3f4c3fd7401dbf2cbf9d3eab3b0ebef93f18400abf0e3d80bfeabfb2"},
    {1, "0x40a20000", "be693f16bfae3eccbeb73f2d3f88bffabfb53f10bfdebcb43d803dce3edc3d08"},
    {1, "0x40a20000", "3f6f3e7cbf2abf14bf8b3eefbeb53c32bfa23fccbdc63f7e3f333f323f493f20"},
    {1, "0x409b0000", "bfe7bdc23f643f4e3ea5bf7dbf78bd963e7cbf64be89be853f0c3fa2bf95bfbe"},
    {0, "0x40a20000", "bf61bebf3f183f46bfcc3faf3f803fa4bf72be88bf893eb93ee73e12be493ec3"},
    {0, "0x40a20000", "3ccc3e913fe9bfa23dbdbfc5bf123d3d3f5abf603f70bf23bf053fa73ebebd5c"},
    {0, "0x40a20000", "3ef13f033e9fbfa6be5f3d8dbffbbfbabeb93f163ed7bd55bd8e3f05bf503e2d"},
    {0, "0x409b0000", "bf53bfd5bf093f9e3fb43fa6bd1ebf56bf27bf0abfd93e273fe8be1bbeacbf5c"},
    {0, "0x40960000", "be08bea1be01bf21bf07c0123f45bd8e3f13bc3dbf19bf5a3f7d3f543f5cbf93"},
    {0, "0x40960000", "be73bef23dc23ffe3da83f563f17bf423f02bf203fa9bf9bbe2b3fcb3f823f57"},
};
// te, mae, fast metric, binary32
inline constexpr CanaryBlock kTeFastMaeF32[] = {
    {1, "0x40aa0000",
     "bfbdb9193f119b4bbf34236d3fc1c5babfb75799bef495e3bfaf246c3f37e281"
     "3ecfe63c3f0e184e3f906c06bebe1990bf85f45abe7fed6c3ebf29403fdec59a"},
    {1, "0x40a20000",
     "bfda3b783e2d75a73fa86499be1519513e5b4952bf2a5f643f880e8fbe840ce3"
     "bf6a26f03f28b53cbf9f4d5c3f529518be24fe59bf951fab3d657e023f68e3c2"},
    {1, "0x40aa0000",
     "3f054bfebf8d4deabfb34092bf0dbc85bfff5ca6bed00870bf6cba3b3f67c46a"
     "3e3d0cf3bf5c0bd53fc21c053f1a89b2bf1a1ee93f20d3e0bdca4ef1bfbacada"},
    {1, "0x40a20000",
     "bfa8c3f0bf0492463f9f19b3beea7dd63f231d253f900522bf38ea29bec5768c"
     "3e899beb3f14343d3e306cccbe94560fbf0f6ef63e260542bbb1aa1abf1a2aad"},
    {1, "0x40aa0000",
     "3f1a86cd3e9a17043fc88fffbf222126bff7b23c3f4a0105be2471a1be812da6"
     "3f9b37f5bf8012bcbf3e236a3e792cedbe0fe638bea68b5fbdf07f383f457e5e"},
    {1, "0x409b0000",
     "3eab16223dcdc90fbfefd9ca3f9d75543f6006aebe89c9c8c02dcd4f3ea87013"
     "3f40fe16be8d856a3e76a88c3fb9e2023fa7d274bf5cc369401d64193e97152d"},
    {0, "0x409b0000",
     "bdcb5c5abf36368c3f97f4b23d81934dbd9f6b1fbeddce8d3f88d814bff09770"
     "3f4de7b63fca320abf0c5de9bfabe1f03f0ab8c9befdbeeb3f3be9e7bf61d224"},
    {0, "0x409b0000",
     "bfa0c8343ee3f1113eabcda3bf14049f3fb8c9ca3f7dd7a23fca0594bfc73679"
     "3faba9f03f672c68bf592f513f0495443f2f62033f9fc55abf7fad28beef9a12"},
    {0, "0x40960000",
     "3d4028d93ff7b1a1bfd4fa2dbf3ab2bc3fd6ffd1bfacb9b73e6ebd72be90b8b2"
     "3f99dd993fd157b13e4314c6bf724d553f5471b6bf788b72bfe4d6823ebe466a"},
    {0, "0x40a20000",
     "bf645f743f7991073ede5a963e6f9171bea710c0bf3b8114bf617381beb594c8"
     "bfc45efdbf76595abeedfdc23f23bebfbd8c206dbf92a6f93db33d4d400ab737"},
    {0, "0x40a20000",
     "bf8fa88e3ee5169e3f66d43dbf735f663f7650e73ea5f6c5bda99a6dbeeece93"
     "3f5c3fabc01dc71b3f2a813dbf5fe58dbf9263a93fb412b83ebab7513f8d5134"},
    {0, "0x409b0000",
     "3e878c37bd2ede383f2b1b26bfb06159bf5fde993f7a59503f57d640be31962e"
     "bec029523f1503953cd0cb6a4003e9933f0d3851be45bed3401951953f87cca4"},
};
inline constexpr CanaryCase kCanaryCases[] = {
    {"nvfp4:contract=te,select=mse", 256.0f, CanaryMetric::kAmax, true, kTeMse},
    {"nvfp4:contract=flashinfer,select=mse,ftz=off", 448.0f, CanaryMetric::kDecode, true,
     kFlashinferMse},
    {"nvfp4:contract=flashinfer,select=mae,ftz=off", 448.0f, CanaryMetric::kDecode, false,
     kFlashinferMae},
    {"nvfp4:contract=flashinfer,select=mae,ftz=off", 448.0f, CanaryMetric::kDecode, false,
     kFlashinferMaeF32},
    {"nvfp4:contract=te,select=mse", 256.0f, CanaryMetric::kAmax, true, kTeMseF32},
    {"nvfp4:contract=te,select=mse,metric=fast", 256.0f, CanaryMetric::kFast, true, kTeFastMse},
    {"nvfp4:contract=te,select=mae,metric=fast", 256.0f, CanaryMetric::kFast, false, kTeFastMaeF32},
};

}  // namespace fp4scope::test
