#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Writes model_limits.h: how far what the programs tell may be from the model's truth where they do not see all.

Runs build/model/test_model with sixteen seeds. The limit of a measure is the mean and four standard deviations, or the
most that was seen, and one in a thousand. A measure that is 0 for each seed where nothing is skipped stays so. To be
run anew when the model has changed or a rule tells more; when a rule tells less, test_model fails, and a reader of the
difference asks why.
"""
import os
import statistics
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODEL = Path(os.environ.get("NAGLETRACE_MODEL", ROOT / "build/model/test_model"))
SEEDS = range(1, 17)
HEAD = """/* SPDX-License-Identifier: GPL-2.0 */
/* Made by model_limits.py: of ten thousand each, in the order of `pool` in test_model.c. */
static const struct limits limits[] = {
"""


def measured(seed: int) -> dict[str, list[int]]:
    model = subprocess.run([MODEL], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                           env={**os.environ, "NAGLETRACE_MODEL_LIMITS": "1", "NAGLETRACE_MODEL_SEED": str(seed)})
    if model.returncode:
        raise SystemExit(f"NAGLETRACE_MODEL_SEED={seed} fails without limits:\n{model.stderr}")
    lines = [line.removeprefix("measured ") for line in model.stderr.splitlines() if line.startswith("measured ")]
    return {kind: [int(n) for n in numbers.split()] for kind, numbers in (line.split(":") for line in lines)}


def limit(seen: tuple[int, ...], skipped: bool) -> int:
    if not max(seen) and not skipped:
        return 0
    return max(*seen, round(statistics.mean(seen) + 4 * statistics.stdev(seen))) + 10


def main() -> None:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        seeds = list(pool.map(measured, SEEDS))
    rows = []
    for kind in seeds[0]:
        most = [limit(n, "skipped" in kind) for n in zip(*(seed[kind] for seed in seeds))]
        rows.append(f'\t{{"{kind}", {{{", ".join(map(str, most))}}}}},\n')
    (ROOT / "tests/model/model_limits.h").write_text(HEAD + "".join(rows) + "};\n")


if __name__ == "__main__":
    main()
