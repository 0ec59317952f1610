# SPDX-License-Identifier: Apache-2.0
"""Loads a file of safetensors: mapped, never read as a whole, and sent to the device as one job. load() is all of it.

    python safetensors_load.py [FILE]       without a file it makes a small one
"""
import json
import os
import struct
import sys
import tempfile

import runnel

TYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
         "U8": "uint8", "BOOL": "bool"}


def load(path, stream):
    """The tensors by name, as blocks; torch.from_dlpack() makes tensors of them. Returns before the bytes are there."""
    header_size = struct.unpack("<Q", runnel.map_file(path, 0, 8))[0]
    header = json.loads(bytes(runnel.map_file(path, 8, header_size)))
    header.pop("__metadata__", None)
    data = runnel.map_file(path, 8 + header_size)
    memory = runnel.empty(data.nbytes, stream)  # one block for all of them
    tensors, copies = {}, []
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        part = memory.view("uint8", (end - begin,), begin)
        copies.append((part, data[begin:end]))
        tensors[name] = memory.view(TYPES[entry["dtype"]], entry["shape"], begin)
    runnel.copy_many(copies, stream, any_time=True)
    return tensors


def make_file(path):
    header, at, data = {}, 0, b""
    for i in range(20):
        values = struct.pack("<600f", *(float(i),) * 600)
        header[f"layer{i}.weight"] = {"dtype": "F32", "shape": [20, 30], "data_offsets": [at, at + len(values)]}
        at, data = at + len(values), data + values
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(folder, "model.safetensors")
        if len(sys.argv) == 1:
            make_file(path)
        stream = runnel.Stream()
        tensors = load(path, stream)
        name, tensor = next(reversed(tensors.items()))
        back = bytearray(tensor.nbytes)
        runnel.copy(back, tensor, stream)
        stream.synchronize()
        if len(sys.argv) == 1:
            assert struct.unpack_from("<f", back)[0] == 19
        print(f"{len(tensors)} tensors; the last one is {name}: {tensor}")


if __name__ == "__main__":
    main()
