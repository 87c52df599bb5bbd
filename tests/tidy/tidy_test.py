#!/usr/bin/env python3
"""Checks the tree against the rules of the house (tests/tidy/rules.py), then the rules themselves.

Prints `path:line: rule: what` for every finding and exits 1 if there is any. Needs no build.
"""

import os
import pathlib
import subprocess
import sys

import rules
import samples

ROOT = pathlib.Path(__file__).resolve().parents[2]


def listed_files():
    """What git tracks or would track; everything but build output where there is no git."""
    git = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True, check=False)
    if git.returncode == 0:
        return [os.fsdecode(name) for name in git.stdout.split(b"\0") if name]
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in (".git", "build", ".cache", "__pycache__")]
        found += [os.path.relpath(os.path.join(folder, name), ROOT) for name in files]
    return found


def read_tree():
    tree = {}
    for name in sorted(listed_files()):
        path = ROOT / name
        if path.is_file():
            tree[name] = path.read_bytes().decode("utf-8", errors="surrogateescape")
    return tree


def self_test():
    """A rule that cannot fail, or that fails at good code, is a bug of the checker."""
    problems = []
    for rule in rules.RULES:
        name = rule.__name__
        for found in rule(samples.GOOD):
            problems.append(f"{name} finds fault with the good sample: {found}")
        if not samples.BAD.get(name):
            problems.append(f"{name} has no bad sample")
        for number, change in enumerate(samples.BAD.get(name, ()), 1):
            if not list(rule({**samples.GOOD, **change})):
                problems.append(f"{name} does not catch its bad sample {number}: {sorted(change)}")
    return problems


def main():
    problems = self_test()
    tree = read_tree()
    if len(tree) < 20:
        problems.append(f"only {len(tree)} files found under {ROOT}: nothing was checked")
    for rule in rules.RULES:
        for path, line, what in rule(tree):
            problems.append(f"{path}:{line}: {rule.__name__}: {what}")
    for problem in problems:
        print(problem)
    print(f"tidy: {len(tree)} files, {len(rules.RULES)} rules, {len(problems)} findings")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.exit(main())
