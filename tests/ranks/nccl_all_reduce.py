"""Times the all-reduce of NCCL on the devices of this machine, one process a device, for `gpu-tests ranks` to stand beside.

Usage: python3 nccl_all_reduce.py OUT.json [ELEMENTS ...]

Sums of f32, warm: a graph of 20 all-reduces, timed by events, the slowest rank of each run, the median of 50 runs.
Says too how many values differ from the f32 sum in rank order, which is what the push all-reduce gives to the bit.
NVLink multicast stays off.
"""

import json
import os
import statistics
import sys

os.environ["NCCL_NVLS_ENABLE"] = "0"

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

CHAIN = 20
RUNS = 50


def rank_main(rank, world, sizes, out):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world)
    rows = []
    for size in sizes:
        data = torch.randn(size, device="cuda")
        parts = [torch.empty_like(data) for _ in range(world)]
        dist.all_gather(parts, data)
        total = data.clone()
        dist.all_reduce(total)
        wanted = sum(part.double() for part in parts)
        error = ((total.double() - wanted).abs().max() / wanted.abs().max()).item()
        ordered = parts[0].clone()
        for part in parts[1:]:
            ordered += part
        others = int((total != ordered).sum().item())
        work = torch.zeros(size, device="cuda")
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                dist.all_reduce(work)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(CHAIN):
                dist.all_reduce(work)
        times = []
        for _ in range(RUNS):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            dist.barrier()
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                start.record()
                graph.replay()
                end.record()
            end.synchronize()
            slowest = torch.tensor([start.elapsed_time(end) * 1000 / CHAIN], device="cuda")
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            times.append(slowest.item())
        # A live graph keeps the group from ending.
        graph.reset()
        rows.append({
            "elements": size,
            "world": world,
            "us_median": statistics.median(times),
            "us_least": min(times),
            "us_greatest": max(times),
            "relative_error": error,
            "values_other_than_the_sum_in_rank_order": others,
        })
    if rank == 0:
        with open(out, "w") as file:
            json.dump({"torch": torch.__version__, "nccl": list(torch.cuda.nccl.version()), "rows": rows}, file, indent=1)
        print(json.dumps(rows))
    dist.destroy_process_group()


if __name__ == "__main__":
    world = torch.cuda.device_count()
    sizes = [int(size) for size in sys.argv[2:]] or [7168, 16 * 7168]
    mp.spawn(rank_main, args=(world, sizes, sys.argv[1]), nprocs=world)
