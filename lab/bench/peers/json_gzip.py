"""Saves the whole state as compressed JSON in a new file, and renames it over the old file, without a sync."""

import gzip
import json
import os
import sys
import time

folder = sys.argv[1]
print("ready", flush=True)

events = []
for _ in range(int(sys.stdin.readline())):
    events += json.loads(sys.stdin.readline())["events"]
print("begun", flush=True)

for line in sys.stdin:
    delta = json.loads(line)
    events += delta["events"]
    begun = time.perf_counter_ns()
    new = os.path.join(folder, "state.tmp")
    with gzip.open(new, "wt", compresslevel=6, encoding="utf-8") as file:
        json.dump({"head": delta["head"], "events": events}, file)
    os.rename(new, os.path.join(folder, "state.json.gz"))
    print(time.perf_counter_ns() - begun, flush=True)
