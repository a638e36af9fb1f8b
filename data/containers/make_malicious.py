"""Writes malicious/: small pickles and zip archives that a reader has to survive.

    python3 make_malicious.py FOLDER

Everything is assembled from opcodes and zip records; nothing here pickles an object, and nothing may ever unpickle these files.
malicious.json lists them: {file, what, must, opcode, also_ok}.
  must     "refuse": the reader gives an error;  "inert": it opens, runs nothing, and shows no tensor or only a named stub
  opcode   the pickle opcode that the error has to name, or null
  also_ok  the other answer where it would be as safe, or null
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from malicious_archives import zips
from malicious_calls import calls
from malicious_legacy import legacy
from malicious_list import Cases
from malicious_streams import streams
from malicious_tensors import tensors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder `malicious` in it is replaced")
    folder = parser.parse_args().folder / "malicious"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    cases = Cases(folder)
    for make in (calls, tensors, streams, legacy, zips):
        make(cases)
    assert len({c["file"] for c in cases.list}) == len(cases.list)
    rows = ",\n".join(json.dumps(c) for c in cases.list)
    (folder / "malicious.json").write_text(f"[\n{rows}\n]\n", encoding="utf-8")
    print(len(cases.list), "files")


if __name__ == "__main__":
    main()
