// malformed_places.cc: what is no regular file or no container; format files and recipes. See
// malformed_table.h.
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>

#include "sim/error.h"
#include "sim/format_file.h"
#include "sim/recipe.h"
#include "tests/unit/malformed_table.h"

namespace fp4scope::test {
namespace {

MalformedCase toml_case(const char* name, const std::string& text) {
  return {std::string("format file: ") + name, [text](const TempDir& dir) {
            write_file(dir.file("FILE"), text);
            (void)load_format_file(dir.file("FILE"));
          }};
}
// The first block of a tar archive (POSIX.1-1988): the name of a member, and the magic at byte 257.
std::string tar_start(const std::string& name) {
  std::string block(1024, '\0');
  block.replace(0, name.size(), name);
  block.replace(257, 8,
                std::string("ustar\0"
                            "00",
                            8));
  return block;
}
MalformedCase recipe_case(const std::string& text) {
  return {"recipe: " + (text.empty() ? "no text" : text),
          [text](const TempDir&) { (void)parse_recipe(text); }};
}

}  // namespace

MalformedCases malformed_places() {
  return {
      {"place: no such file", [](const TempDir& dir) { open_and_read(dir.file("FILE")); }},
      {"place: a link to nothing",
       [](const TempDir& dir) {
         std::filesystem::create_symlink("nowhere", dir.path() / "FILE");
         open_and_read(dir.file("FILE"));
       }},
      {"place: an empty directory",
       [](const TempDir& dir) {
         std::filesystem::create_directory(dir.path() / "FOLDER");
         open_and_read(dir.file("FOLDER"));
       }},
      {"place: a directory with two indexes",
       [](const TempDir& dir) {
         std::filesystem::create_directory(dir.path() / "FOLDER");
         write_file(dir.file("FOLDER/a.safetensors.index.json"), "{}");
         write_file(dir.file("FOLDER/b.safetensors.index.json"), "{}");
         open_and_read(dir.file("FOLDER"));
       }},
      {"place: the null device", [](const TempDir&) { open_and_read("/dev/null"); }},
      {"place: an empty name", [](const TempDir&) { open_and_read(""); }},
      {"place: a NUL byte in the name",
       [](const TempDir&) { open_and_read(std::string("a\0b", 3)); }},
      {"place: a pipe that brings nothing",
       [](const TempDir& dir) {
         const std::string path = dir.file("FILE");
         if (::mkfifo(path.c_str(), 0600) != 0) return;
         const pid_t child = ::fork();  // a writer that goes at once
         if (child == 0) ::_exit(std::fopen(path.c_str(), "wb") == nullptr ? 1 : 0);
         open_and_read(path);
       }},
      file_case("place: an empty file", ""),
      file_case("place: a file of three bytes", "abc"),
      file_case("place: a text file", "layer,mse\n0,0.125\n"),
      file_case("place: a picture", "\x89PNG\r\n\x1a\n0123456789"),
      file_case("place: a tar-format torch file", tar_start("sys_info")),
      file_case("place: a tar archive", tar_start("x.safetensors")),
      file_case("place: a pickle of protocol 0", "(dp0\nVw\np1\nL1L\ns."),
      file_case("place: a story", "chapter\none\ntext of a story."),
      file_case("place: a Lisp program", "(lp lisp program) ; comment."),
      file_case("place: an array in a pickle of protocol 0",
                "cnumpy.core.multiarray\n_reconstruct\np0\n(."),
      file_case("place: a torch file with pickles of protocol 0",
                "L119547037146038801333356L\n.I1001\n."),
      file_case("place: a file of zeros", std::string(64, '\0')),
  };
}

MalformedCases malformed_texts() {
  return {
      toml_case("no TOML", "[[element]\nname = \"x\"\n"),
      toml_case("unknown table", "[[elements]]\nname = \"x\"\n"),
      toml_case("no name", "[[element]]\nexponent-bits = 3\n"),
      toml_case("an element of nine bits",
                "[[element]]\nname = \"x\"\nexponent-bits = 5\nmantissa-bits = 3\nbias = 15\n"),
      toml_case("a built-in name",
                "[[element]]\nname = \"e4m3\"\nexponent-bits = 4\nmantissa-bits = 3\nbias = 7\n"),
      toml_case("a table of one value", "[[lut]]\nname = \"t\"\nvalues = [1]\n"),
      toml_case(
          "unknown element",
          "[[format]]\nname = \"f\"\nelement = \"b\"\nscales = [{group = 16, type = \"e4m3\"}]"
          "\n"),
      recipe_case(""),
      recipe_case("mxpf4"),
      recipe_case("nvfp4:scale"),
      recipe_case("nvfp4:scale=row,scale=row"),
      recipe_case("mxfp4:tie=even"),
      recipe_case("mxfp4:ties=up"),
      recipe_case("custom:e2m1/16:e4m3/"),
  };
}

}  // namespace fp4scope::test
