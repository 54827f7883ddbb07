"""Sandboxes from folders, and from container images in archives and layouts."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest
import zstandard

from gymmesh_runtime.errors import MeshError
from tests.support.optional import require
from tests.unit.sandbox_bubblewrap.boxes import backend, box, shell


def layer(files: Mapping[str, bytes | str | None], owner: int = 0) -> bytes:
    """An archive: content; a link where it begins with `->`; a folder for None."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.uid = member.gid = owner
            member.mode = 0o755
            if content is None:
                member.type = tarfile.DIRTYPE
                tar.addfile(member)
            elif isinstance(content, str):
                hard = content.startswith("=>")
                member.type = tarfile.LNKTYPE if hard else tarfile.SYMTYPE
                member.linkname = content[2:]
                tar.addfile(member)
            else:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return made.getvalue()


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@cache
def base() -> bytes:
    """A layer with a shell: this machine's, with what it is linked to."""
    shell_files: dict[str, bytes | str | None] = {}
    for name in ("sh", "ls", "cat", "id", "stat", "pwd"):
        shell_files[f"bin/{name}"] = Path(shutil.which(name) or "").resolve().read_bytes()
    for library in ("libc.so.6", "libselinux.so.1", "libpcre2-8.so.0"):
        found = next(Path("/usr/lib").glob(f"*/{library}"), None)
        if found is not None:
            shell_files[f"lib/{library}"] = found.resolve().read_bytes()
    loader = next(Path("/usr/lib").glob("**/ld-linux-*.so.*")).resolve().read_bytes()
    shell_files["lib64/ld-linux-x86-64.so.2"] = loader
    shell_files["lib/ld-linux-aarch64.so.1"] = loader
    return layer({**shell_files, "etc/passwd": b"app:x:42:43::/srv/app:/bin/sh\n", "tmp": None})


CONFIG = {"Env": ["GREETING=hello", "PATH=/bin"], "WorkingDir": "/srv/app", "User": "app"}


def config(layers: list[bytes]) -> bytes:
    rootfs = {"type": "layers", "diff_ids": [digest(one) for one in layers]}
    return json.dumps({"config": CONFIG, "rootfs": rootfs}).encode()


@cache
def packed(content: bytes) -> bytes:
    """By gzip, quickly."""
    return gzip.compress(content, compresslevel=1)


def write_layout(
    folder: Path, layers: list[bytes], compress: Callable[[bytes], bytes] = packed
) -> str:
    """An OCI layout with compressed layers; the digest of its manifest."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def add(content: bytes) -> dict[str, object]:
        name = digest(content)
        (blobs / name.removeprefix("sha256:")).write_bytes(content)
        return {"digest": name, "size": len(content)}

    manifest = {
        "config": add(config(layers)),
        "layers": [add(compress(one)) for one in layers],
    }
    entry = add(json.dumps(manifest).encode())
    (folder / "index.json").write_text(json.dumps({"manifests": [entry]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return str(entry["digest"])


def write_docker(path: Path, layers: list[bytes]) -> None:
    """What `docker save` writes."""
    files = {f"{number}/layer.tar": content for number, content in enumerate(layers)}
    description = [{"Config": "config.json", "RepoTags": [], "Layers": list(files)}]
    files |= {"config.json": config(layers), "manifest.json": json.dumps(description).encode()}
    path.write_bytes(layer(files))


def in_two_frames(content: bytes) -> bytes:
    """Compressed by zstd, as tools that compress in parallel do it."""
    one = zstandard.ZstdCompressor()
    return one.compress(content[:100]) + one.compress(content[100:])


UPPER = {"srv/app/new": b"new", "etc/.wh.removed": b"", "opt/.wh..wh..opq": b"", "opt/kept": b"k"}


def layers() -> list[bytes]:
    lower = {
        "etc/removed": b"x",
        "opt/hidden": b"x",
        "opt/more/hidden": b"x",
        "srv/app/old": b"old",
    }
    linked = {"srv/app/hard": "=>srv/app/old", "srv/app/soft": "->/srv/app/old"}
    return [base(), layer({**lower, **linked}, owner=42), layer(UPPER)]


@pytest.mark.parametrize("kind", ["layout", "oci-archive", "docker", "docker.gz", "zstd"])
async def test_an_image_is_unpacked_and_its_configuration_holds(tmp_path: Path, kind: str) -> None:
    require(shutil.which("bwrap"), "bubblewrap", "install the Debian package bubblewrap")
    image = tmp_path / kind
    if kind.startswith("docker"):
        write_docker(image, layers())
        if kind.endswith("gz"):
            image.write_bytes(packed(image.read_bytes()))
    else:
        compress = in_two_frames if kind == "zstd" else packed
        wanted = write_layout(tmp_path / "layout", layers(), compress)
        if kind == "zstd":
            image = tmp_path / "layout"
        if kind == "oci-archive":
            with tarfile.open(image, "w") as tar:
                tar.add(tmp_path / "layout", ".", filter=_plain_name)
    async with backend(tmp_path / "store", images={"app": str(image)}) as made:
        async with box(made, root="app") as sandbox:
            if not kind.startswith("docker"):
                assert sandbox.image_digest == wanted
            assert (sandbox.user, sandbox.workdir) == ("app", "/srv/app")
            line = (
                "pwd; id -u; id -g; echo $GREETING $HOME; ls /etc /opt; ls; cat hard soft; echo; "
            )
            _, wrote, said = await shell(sandbox, line + "stat -c %u:%h old; ls /usr")
            seen = b"/srv/app 42 43 hello /srv/app /etc: passwd /opt: kept hard new old soft"
            assert wrote.split() == [*seen.split(), b"oldold", b"42:2"], said
        async with box(made, root="app", user="0", name="b-2") as sandbox:
            await shell(sandbox, "echo changed > /srv/app/old")
        async with box(made, root="app", name="b-3") as sandbox:
            assert (await shell(sandbox, "cat old"))[1] == b"old"


def _plain_name(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.name = member.name.removeprefix("./")
    return member


async def refused(tmp_path: Path, image: Path) -> str:
    async with backend(tmp_path / "store", images={"app": str(image)}) as made:
        with pytest.raises(MeshError) as caught:
            async with box(made, root="app"):
                pass
        assert not list(tmp_path.glob("store/images/*/*new*"))
    return str(caught.value)


async def test_what_is_wrong_with_an_image_is_said(tmp_path: Path) -> None:
    require(shutil.which("bwrap"), "bubblewrap", "install the Debian package bubblewrap")
    image = tmp_path / "image"
    assert "SANDBOX_IMAGE_NOT_FOUND" in await refused(tmp_path, image)
    image.write_bytes(layer({"x": b""}))
    assert "neither an archive of an image nor a folder in the OCI layout" in await refused(
        tmp_path, image
    )
    image.write_bytes(b"no archive")
    assert "SANDBOX_IMAGE_FAILED" in await refused(tmp_path, image)
    write_docker(image, [layer({"x": b"1"})])
    image.write_bytes(
        image.read_bytes().replace(digest(layer({"x": b"1"})).encode(), b"sha256:" + b"0" * 64)
    )
    assert "the content of a layer does not match its digest" in await refused(tmp_path, image)
    compressions: tuple[Callable[[bytes], bytes], ...] = (packed, in_two_frames)
    for number, compress in enumerate(compressions):
        broken = tmp_path / f"broken-{number}"

        def damaged(content: bytes, compress: Callable[[bytes], bytes] = compress) -> bytes:
            whole = compress(content)
            return whole[:12] + b"\xff" * 8 + whole[20:]

        write_layout(broken, [layer({"x": b"1"})], damaged)
        said = await refused(tmp_path, broken)
        assert "SANDBOX_IMAGE_FAILED" in said
        assert "a layer is broken" in said
    write_layout(tmp_path / "layout", [layer({"x": b"1"})])
    for blob in (tmp_path / "layout" / "blobs" / "sha256").iterdir():
        blob.write_bytes(blob.read_bytes() + b" ")
    assert "does not match its digest" in await refused(tmp_path, tmp_path / "layout")


@pytest.mark.parametrize(
    "files",
    [
        {"../out": b"x"},
        {"a/../../out": b"x"},
        {"l": "->/tmp/outside", "l/out": b"x"},
        {"l": "->../../../../outside", "l/out": b"x"},
        {"h": "=>../../../../etc/passwd"},
    ],
)
async def test_a_layer_writes_nothing_outside(
    tmp_path: Path, files: Mapping[str, bytes | str | None]
) -> None:
    require(shutil.which("bwrap"), "bubblewrap", "install the Debian package bubblewrap")
    write_docker(tmp_path / "image", [base(), layer(files)])
    async with backend(tmp_path / "store", images={"app": str(tmp_path / "image")}) as made:
        with contextlib.suppress(MeshError):  # it may be refused, or keep to its folder
            async with box(made, root="app", user="0", workdir="/"):
                pass
    assert not list(tmp_path.rglob("store/out*"))
    assert not Path("/tmp/outside").exists()
    assert not (tmp_path / "out").exists()


async def test_a_folder_is_an_image(tmp_path: Path) -> None:
    require(shutil.which("bwrap"), "bubblewrap", "install the Debian package bubblewrap")
    folder = tmp_path / "root"
    with tarfile.open(fileobj=io.BytesIO(base())) as tar:
        tar.extractall(folder, filter="tar")
    images = {"app": str(folder)}
    async with backend(tmp_path / "store", images=images) as made, box(made, root="app") as sandbox:
        _, wrote, _ = await shell(sandbox, "id -u; stat -c %u /bin/sh; echo x > /new; cat /new")
        assert wrote == b"0\n0\nx\n"
    assert not (folder / "new").exists()


async def test_the_root_of_this_machine_is_made_once(tmp_path: Path) -> None:
    roots = []
    for _ in range(2):
        async with backend(tmp_path) as made, box(made) as sandbox:
            assert (await shell(sandbox, "ls /etc/passwd"))[1] == b"/etc/passwd\n"
        roots.append([(path, path.stat().st_ino) for path in tmp_path.glob("images/*/host-*")])
    assert len(roots[0]) == 1
    assert roots[0] == roots[1]
