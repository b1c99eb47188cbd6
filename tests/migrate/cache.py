#!/usr/bin/env python3
"""Makes a tree like a package manager's cache: files named by hash, and packages of hard links to them."""
import hashlib
import os
import random
import sys

root = sys.argv[1]
draw = random.Random(7)
blobs = []
for number in range(1500):
    content = draw.randbytes(int(2 ** draw.uniform(0, 16)))
    name = hashlib.sha512(content).hexdigest()
    folder = f"{root}/content-v2/sha512/{name[:2]}/{name[2:4]}"
    os.makedirs(folder, exist_ok=True)
    path = f"{folder}/{name[4:]}"
    with open(path, "wb") as file:
        file.write(content)
    os.utime(path, ns=(0, draw.randrange(10**18, 17 * 10**17)))
    blobs.append(path)
for number in range(150):
    package = f"{root}/node_modules/@scope-{number % 12}/package-{number}"
    os.makedirs(f"{package}/lib/deep", exist_ok=True)
    for file in range(draw.randrange(2, 30)):
        where = draw.choice(["", "lib/", "lib/deep/"])
        os.link(draw.choice(blobs), f"{package}/{where}file {file}.js")
    os.makedirs(f"{root}/node_modules/.bin", exist_ok=True)
    os.symlink(f"../@scope-{number % 12}/package-{number}/lib", f"{root}/node_modules/.bin/tool-{number}")
    os.symlink("nowhere/at all", f"{package}/dangling")
