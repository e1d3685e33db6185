#!/usr/bin/env python3
"""Runs a folder of cases on the first GPU and compares with the emulator's results.

    python3 tests/gpu/smoke.py CASES_DIR --out result.json

CASES_DIR comes from the program `gpu_cases` of kernel_tests: index.json, cubins and data.bin. Random inputs are
made here by the recipe of kernel_abi::numeric::random. Needs Python 3, numpy and libcuda.so.1, nothing else.
Outputs are poisoned before the launch and have a guard behind them; what a kernel does not write stays poison.
A case that does not end in time ends the run. Exit code 1 when a case fails.
"""
import ctypes as c
import datetime
import json
import os
import pathlib
import sys
import time

import numpy as np

POISON, GUARD, SECONDS = 0x7B, 256, 30.0  # poison is far from any result, as f32 and as bf16
NOT_READY, PDL, DYNAMIC_SHARED = 600, 6, 8  # CUDA_ERROR_…, CU_LAUNCH_ATTRIBUTE_…, CU_FUNC_ATTRIBUTE_…
KINDS = {"i8": "i1", "u8": "u1", "bool": "u1", "i32": "<i4", "u32": "<u4", "i64": "<i8", "u64": "<u8",
         "f32": "<u4", "f16": "<u2", "bf16": "<u2", "e4m3": "u1", "e5m2": "u1", "ue8m0": "u1", "e2m1": "u1"}
INFINITIES = {"f32": 0x7F800000, "f16": 0x7C00, "bf16": 0x7F80}
G = np.uint64(0x9E3779B97F4A7C15)


class Attribute(c.Structure):
    _fields_ = [("id", c.c_uint), ("pad", c.c_char * 4), ("value", c.c_int), ("rest", c.c_char * 60)]


class Config(c.Structure):
    _fields_ = [("grid", c.c_uint * 3), ("block", c.c_uint * 3), ("shared", c.c_uint), ("stream", c.c_void_p),
                ("attributes", c.POINTER(Attribute)), ("count", c.c_uint)]


class Driver:
    """Functions of libcuda; a return code that is not 0 raises."""

    def __init__(self):
        self.lib = c.CDLL("libcuda.so.1")

    def __getattr__(self, name):
        def call(*args):
            code = getattr(self.lib, name)(*args)
            if code != 0:
                text = c.c_char_p()
                self.lib.cuGetErrorString(code, c.byref(text))
                raise RuntimeError(f"{name}: {code} {(text.value or b'').decode()}")
        return call

    def wait(self, stream):
        end = time.monotonic() + SECONDS
        while self.lib.cuStreamQuery(stream) == NOT_READY:
            if time.monotonic() > end:
                raise TimeoutError(f"not done after {SECONDS} s")
            time.sleep(0.0005)
        self.cuStreamSynchronize(stream)


def mix(z):
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def words(seed, stream, first, count):
    key = mix(np.uint64(seed) + G * np.uint64(stream + 1))
    return mix(key + G * (np.arange(first, first + count, dtype=np.uint64) + np.uint64(1)))


def random(dtype, count, seed, fill):
    """Little-endian memory of `count` random elements."""
    if fill["distinct"]:
        (low, high), but, most = fill["range"], fill["except"], max(4 * count, 1024)
        candidates = np.arange(low, min(high, low + most + 1), dtype=np.int64)
        candidates = candidates[candidates != (low - 1 if but is None else but)][:most]
        chosen = candidates[np.argsort(words(seed, fill["stream"], 0, len(candidates)), kind="stable")][:count]
        rest = np.full(count - len(chosen), but or 0, dtype=np.int64)
        return np.concatenate([chosen, rest]).astype(KINDS[dtype]).tobytes()
    pieces = []
    for first in range(0, count, 1 << 22):
        w = words(seed, fill["stream"], first, min(1 << 22, count - first))
        if dtype in INFINITIES:
            x = (w >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1.0)
            u = x.view(np.uint32)
            bf16 = (u + np.uint32(0x7FFF) + ((u >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
            x = {"f32": x, "f16": x.astype("<f2"), "bf16": bf16.astype("<u2")}[dtype]
        else:
            low, high = fill["range"]
            x = ((w % np.uint64(high - low)).astype(np.int64) + low).astype(KINDS[dtype])
        pieces.append(x.tobytes())
    return b"".join(pieces)


def values(dtype, codes):
    if dtype == "bf16":
        return (codes.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return codes.view({"f32": "<f4", "f16": "<f2"}[dtype]).astype(np.float64)


def compare(dtype, got, want, case):
    """Elements outside the tolerance, and the greatest distance in codes; NaN equals NaN."""
    if dtype not in INFINITIES:
        return int(np.count_nonzero(got != want)), 0
    sign = np.int64(1) << (8 * got.itemsize - 1)
    codes = [x.astype(np.int64) for x in (got, want)]
    nan = [(x & (sign - 1)) > INFINITIES[dtype] for x in codes]
    rank = [np.where(x & sign, -(x & (sign - 1)), x) for x in codes]
    ulp = np.where(nan[0] | nan[1], 0, np.abs(rank[0] - rank[1]))
    with np.errstate(invalid="ignore"):
        near = np.abs(values(dtype, got) - values(dtype, want)) <= case["abs"]
    exact = case["ulp"] == 0 and case["abs"] == 0
    outside = (nan[0] ^ nan[1]) | (~nan[0] & ((got != want) if exact else (ulp > case["ulp"]) & ~near))
    return int(np.count_nonzero(outside)), int(ulp.max(initial=0))


def run(cuda, folder, data, seed, case):
    read = lambda place: data[place["at"]:place["at"] + place["bytes"]]
    module, function, stream, cells, buffers = c.c_void_p(), c.c_void_p(), c.c_void_p(), [], []
    cuda.cuModuleLoadData(c.byref(module), (folder / case["cubin"]).read_bytes())
    cuda.cuModuleGetFunction(c.byref(function), module, case["export"].encode())
    cuda.cuStreamCreate(c.byref(stream), 1)
    for param in case["params"]:
        if "scalar" in param:
            cells.append(c.create_string_buffer(read(param["scalar"]), 8))
            continue
        size, address, fill = param["bytes"], c.c_uint64(0), param["fill"]
        cells.append(address)
        if size == 0:  # a buffer without elements is a null pointer
            continue
        cuda.cuMemAlloc_v2(c.byref(address), c.c_size_t(size + GUARD))
        cuda.cuMemsetD8_v2(address, c.c_ubyte(POISON), c.c_size_t(size + GUARD))
        buffers.append((param, address, size))
        if fill != "poison":
            count = size // np.dtype(KINDS[param["dtype"]]).itemsize
            content = read(fill) if "at" in fill else random(param["dtype"], count, seed, fill)
            cuda.cuMemcpyHtoD_v2(address, content, c.c_size_t(size))
    pointers = (c.c_void_p * max(1, len(cells)))(*[c.addressof(cell) for cell in cells])
    grid, threads, shared = (case["launch"][key] for key in ("grid", "threads", "dynamic_shared_bytes"))
    if shared:
        cuda.cuFuncSetAttribute(function, DYNAMIC_SHARED, shared)
    if case["launch"]["waits_for_previous"]:
        attribute = Attribute(id=PDL, value=1)
        config = Config(tuple(grid), (threads, 1, 1), shared, stream, c.pointer(attribute), 1)
        cuda.cuLaunchKernelEx(c.byref(config), function, pointers, None)
    else:
        cuda.cuLaunchKernel(function, *grid, threads, 1, 1, shared, stream, pointers, None)
    cuda.wait(stream)
    result = {"compared": 0, "mismatches": 0, "max_ulp": 0}
    for param, address, size in buffers:
        back = np.empty(size + GUARD, dtype=np.uint8)
        cuda.cuMemcpyDtoH_v2(back.ctypes.data_as(c.c_void_p), address, c.c_size_t(size + GUARD))
        cuda.cuMemFree_v2(address)
        result["mismatches"] += int(np.count_nonzero(back[size:] != POISON))
        if param["expected"]:  # with poison where nothing is written
            want = np.frombuffer(read(param["expected"]), dtype=KINDS[param["dtype"]])
            bad, ulp = compare(param["dtype"], back[:size].view(want.dtype), want, case)
            result = {"compared": result["compared"] + len(want), "mismatches": result["mismatches"] + bad,
                      "max_ulp": max(result["max_ulp"], ulp)}
    cuda.cuStreamDestroy_v2(stream)
    cuda.cuModuleUnload(module)
    return result


def main():
    if len(sys.argv) != 4 or sys.argv[2] != "--out":
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    index, data = json.loads((folder / "index.json").read_text()), (folder / "data.bin").read_bytes()
    np.seterr(over="ignore")
    cuda, device, context, version, name = Driver(), c.c_int(), c.c_void_p(), c.c_int(), c.create_string_buffer(256)
    cuda.cuInit(0)
    cuda.cuDeviceGet(c.byref(device), 0)
    cuda.cuDeviceGetName(name, 256, device)
    cuda.cuDriverGetVersion(c.byref(version))
    cuda.cuDevicePrimaryCtxRetain(c.byref(context), device)
    cuda.cuCtxSetCurrent(context)
    report = {"date": datetime.date.today().isoformat(), "gpu": name.value.decode(), "driver": version.value,
              "seed": index["seed"], "target": index["target"], "cases": []}
    print(f"{report['gpu']}, driver API {version.value}, seed {index['seed']}, {len(index['cases'])} cases")
    for case in index["cases"]:
        row = {"name": case["name"], "status": "failed", "compared": 0, "mismatches": 0, "max_ulp": 0}
        try:
            row.update(run(cuda, folder, data, index["seed"], case))
            row["status"] = "failed" if row["mismatches"] else "ok"
        except (RuntimeError, TimeoutError) as error:
            row["error"] = str(error)
        report["cases"].append(row)
        print("{status:6}{compared:9}{mismatches:8}{max_ulp:11} {name}".format(**row), row.get("error", ""))
        if "not done" in row.get("error", ""):
            break
    pathlib.Path(sys.argv[3]).write_text(json.dumps(report, indent=1) + "\n")
    good = sum(row["status"] == "ok" for row in report["cases"])
    print(f"{good} of {len(index['cases'])} cases agree", flush=True)
    os._exit(0 if good == len(index["cases"]) else 1)  # a kernel that still runs must not hold the process


main()
