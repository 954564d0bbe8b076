#!/usr/bin/env python3
"""Writes a CycloneDX 1.5 bill of materials of the crates in hsmux, hsmux-lab and libhsmux_pkcs11.so.

What ships is what `cargo tree` says: normal dependencies, features and target of the release build. The same
Cargo.lock gives the same file, byte for byte: there is no time and no random number in it.
"""

import hashlib
import json
import re
import subprocess
import sys
import uuid

PROGRAMS = ["hsmux-cli", "hsmux-lab", "hsmux-pkcs11"]
TARGET = "x86_64-unknown-linux-gnu"


def cargo(*arguments):
    command = ["cargo", *arguments, "--locked"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def shipped():
    packages = [word for program in PROGRAMS for word in ("-p", program)]
    # Macros run at build time: they are not in the program.
    edges = "normal,no-proc-macro"
    tree = cargo("tree", *packages, "--target", TARGET, "--edges", edges, "--prefix", "none", "--format", "{p}")
    found = (re.match(r"(\S+) v(\S+)", line) for line in tree.splitlines())
    return {match.groups() for match in found if match}


def checksums():
    with open("Cargo.lock", encoding="utf-8") as lock:
        text = lock.read()
    entry = r'name = "([^"]+)"\nversion = "([^"]+)"\n(?:source = "[^"]+"\n)?(?:checksum = "([^"]+)")?'
    return {(name, version): checksum for name, version, checksum in re.findall(entry, text)}


def component(package, checksum):
    name, version = package["name"], package["version"]
    ours = package["source"] is None
    said = {
        "type": "library",
        "bom-ref": f"{name}@{version}",
        "name": name,
        "version": version,
        "purl": f"pkg:cargo/{name}@{version}",
    }
    if package.get("license"):
        said["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if checksum:
        said["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package.get("repository") and not ours:
        said["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return said


def main():
    metadata = json.loads(cargo("metadata", "--format-version", "1", "--filter-platform", TARGET))
    ships, sums = shipped(), checksums()
    packages = {p["id"]: p for p in metadata["packages"] if (p["name"], p["version"]) in ships}
    missing = ships - {(p["name"], p["version"]) for p in packages.values()}
    if missing:
        sys.exit(f"cargo metadata has not: {sorted(missing)}")
    ref = {id: f"{p['name']}@{p['version']}" for id, p in packages.items()}
    order = sorted(packages, key=ref.get)
    edges = {node["id"]: node["deps"] for node in metadata["resolve"]["nodes"]}

    def needs(id):
        normal = (dep for dep in edges[id] if any(kind["kind"] is None for kind in dep["dep_kinds"]))
        return sorted(ref[dep["pkg"]] for dep in normal if dep["pkg"] in ref)

    components = [component(packages[id], sums.get((packages[id]["name"], packages[id]["version"]))) for id in order]
    digest = hashlib.sha256(json.dumps(components, sort_keys=True).encode()).digest()
    version = next(p["version"] for p in packages.values() if p["name"] == "hsmux-cli")
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.UUID(bytes=digest[:16], version=4)}",
        "version": 1,
        "metadata": {
            "component": {"type": "application", "bom-ref": "hsmux", "name": "hsmux", "version": version},
        },
        "components": components,
        "dependencies": [
            {"ref": "hsmux", "dependsOn": sorted(r for r in ref.values() if r.split("@")[0] in PROGRAMS)},
            *({"ref": ref[id], "dependsOn": needs(id)} for id in order),
        ],
    }
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        json.dump(bom, out, indent=1)
        out.write("\n")
    print(f"{sys.argv[1]}: {len(components)} crates")


main()
