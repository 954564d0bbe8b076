#!/usr/bin/env python3
"""mdBook's preprocessor for links that leave docs/.

README.md and other pages of the repository's root are pages of the book, which include them. A link to or in such a
page leads to the book's page. A link to any other file outside docs/ becomes its text.
"""

import json
import posixpath
import re
import sys

# Pages of the root, and where the book has them.
ROOT = {
    "README.md": "first-minute.md",
    "ARCHITECTURE.md": "internals/architecture.md",
    "CONTRIBUTING.md": "internals/contributing.md",
    "SECURITY.md": "internals/reporting.md",
    "CHANGELOG.md": "internals/changelog.md",
}

LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^()\s]+)\)")
FENCE = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)


def moved(page, link):
    """The link as the book has it."""
    image, text, target = link.groups()
    file, _, anchor = target.partition("#")
    if not file or "://" in file or file.startswith("mailto:"):
        return link.group()
    # Where the text was written, seen from the root.
    folder = "" if page in ROOT.values() else posixpath.join("docs", posixpath.dirname(page))
    file = posixpath.normpath(posixpath.join(folder, file))
    is_folder = not posixpath.splitext(file)[1]
    is_page = file in ROOT or file.startswith("docs/") and file != "docs/SUMMARY.md"
    if is_folder or not is_page:
        return text
    file = posixpath.relpath(ROOT.get(file) or file.removeprefix("docs/"), posixpath.dirname(page) or ".")
    return f"{image}[{text}]({file}{'#' + anchor if anchor else ''})"


def walk(items):
    for item in items:
        chapter = item.get("Chapter") if isinstance(item, dict) else None
        if not chapter:
            continue
        page = chapter.get("source_path") or chapter.get("path")
        if page:
            parts = FENCE.split(chapter["content"])
            parts[::2] = [LINK.sub(lambda link: moved(page, link), part) for part in parts[::2]]
            chapter["content"] = "".join(parts)
        walk(chapter["sub_items"])


if sys.argv[1:2] == ["supports"]:
    sys.exit(0)
_, book = json.load(sys.stdin)
walk(book.get("items") or book.get("sections"))
json.dump(book, sys.stdout)
