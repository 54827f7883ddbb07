"""Certificate files: checked when they are read, and read again after a change."""

from __future__ import annotations

import logging
import os
import ssl
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final

from gymmesh_runtime import metrics
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.security.config import TlsConfig
from gymmesh_runtime.text import os_reason

_log = logging.getLogger("gymmesh.security")

#: How often the files are looked at, at most.
CHECK_S: Final = 1.0
# OpenSSL's codes of a certificate whose time is over, or has not come.
EXPIRED: Final = 10
NOT_YET: Final = 9

_Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Validity:
    """The times from which and until which a certificate is valid, in seconds of Unix time."""

    begins: int
    ends: int


@dataclass(frozen=True, slots=True)
class Pem:
    """The contents of the files; certificate and key may be empty.

    ``validity``: of the certificate, and of the authority that expires last, if known.
    """

    certificate: bytes
    key: bytes
    authority: bytes
    validity: Mapping[str, Validity]


class PemFiles:
    """The files of a TLS configuration, complete and checked. Metrics report how long they are
    valid.

    Threads may use it: gRPC asks for a server's certificate from its own threads. Raises
    ConfigError if the files cannot be used at the start. If they become invalid later, the previous
    ones stay in use, and the log says once what is wrong.
    """

    def __init__(self, config: TlsConfig) -> None:
        self.config = config
        self._paths = [
            Path(path).expanduser()
            for path in (config.certificate, config.key, config.authority)
            if path
        ]
        self._lock = threading.Lock()
        self._seen = _stamp(self._paths)
        self._looked = monotonic()
        self._pem = _read(config)
        _show(self._pem.validity)
        self._unfit: _Stamp | None = None  # of files that could not be used at the last look
        self._problem = ""  # that was logged last
        #: Grows with each change that was taken over.
        self.version = 1

    def current(self) -> Pem:
        """The contents that are in use now."""
        with self._lock:
            if monotonic() - self._looked >= CHECK_S:
                self._refresh()
            return self._pem

    def refresh(self) -> int:
        """Loads changed files; returns the version of the contents in use."""
        self.current()
        return self.version

    def _refresh(self) -> None:
        self._looked = monotonic()
        stamp: _Stamp = ()
        try:
            stamp = _stamp(self._paths)
            if stamp == self._seen:
                return
            pem = _read(self.config)
            if _stamp(self._paths) != stamp:
                return  # they changed while they were read: the next look is another try
        except ConfigError as error:
            # Files are often replaced one after the other: at the next look they may fit.
            if stamp == self._unfit:
                self._seen = stamp
                if error.problem != self._problem:
                    _log.error(
                        "%s. This process continues to use the previous files", error.problem
                    )
                self._problem = error.problem
            self._unfit = stamp
            return
        self._seen, self._unfit, self._problem = stamp, None, ""
        if pem != self._pem:
            self._pem = pem
            _show(pem.validity)
            self.version += 1
            paths = ", ".join(map(str, self._paths))
            _log.info("the certificates were reloaded (change %d): %s", self.version - 1, paths)


def _stamp(paths: Sequence[Path]) -> _Stamp:
    """By which a changed file is known. Raises ConfigError."""
    try:
        return tuple(
            (found.st_mtime_ns, found.st_size, found.st_ino) for found in map(os.stat, paths)
        )
    except OSError as error:
        raise _unreadable(str(error.filename), error) from None


def _read(config: TlsConfig) -> Pem:
    """Reads and checks the files. Raises ConfigError."""
    authority = _bytes_of(config.authority)
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        trusting.load_verify_locations(cadata=authority.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise _wrong(config.authority, "contains no PEM certificates", "authority") from None
    found = {"authority": max(map(_validity_of, trusting.get_ca_certs()), key=_ends, default=None)}
    certificate = key = b""
    if config.certificate:
        certificate, key = _bytes_of(config.certificate), _bytes_of(config.key)
        found["certificate"] = check_pair(config)
    known = {file: validity for file, validity in found.items() if validity is not None}
    return Pem(certificate, key, authority, known)


def _validity_of(certificate: Mapping[str, Any]) -> Validity:
    """Of a certificate as the standard library shows it."""
    begins, ends = (ssl.cert_time_to_seconds(certificate[key]) for key in ("notBefore", "notAfter"))
    return Validity(begins, ends)


def _ends(validity: Validity) -> int:
    return validity.ends


def _show(validity: Mapping[str, Validity]) -> None:
    metrics.CERTIFICATE_BEGINS.replace({(file,): one.begins for file, one in validity.items()})
    metrics.CERTIFICATE_ENDS.replace({(file,): one.ends for file, one in validity.items()})


def load_pair(context: ssl.SSLContext, config: TlsConfig) -> None:
    """Loads the certificate and its key into a TLS context. Raises OSError, also for errors of
    TLS.
    """
    certificate, key = (str(Path(one).expanduser()) for one in (config.certificate, config.key))
    # A password would be asked for on the terminal.
    context.load_cert_chain(certificate, key, password=lambda: b"")


def check_pair(config: TlsConfig) -> Validity | None:
    """Checks a certificate, its key and its dates, and returns the dates; None: unknown.

    Raises ConfigError.
    """
    # As a caller's where it is not for servers: its extended key usage may allow one of both.
    for shown_by_server in (True, False):
        code, validity = _verified(config, shown_by_server=shown_by_server)
        if code == EXPIRED:
            raise _wrong(config.certificate, "has expired; issue a new certificate", "certificate")
        if code == NOT_YET:
            raise _wrong(
                config.certificate, "is not valid yet; check this machine's clock", "certificate"
            )
        if validity is not None:
            return validity
    return None


def _verified(config: TlsConfig, *, shown_by_server: bool) -> tuple[int, Validity | None]:
    """What a peer that trusts just this certificate says of it, as OpenSSL's code; 0: well.

    The standard library says a certificate's dates only after a handshake, so one is made with
    ourselves, in memory. Without a code, the certificate's dates, where the handshake succeeded.
    """
    protocols = [ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT]
    shows, checks = (
        _loaded(config, one) for one in (protocols if shown_by_server else reversed(protocols))
    )
    checks.verify_mode = ssl.CERT_REQUIRED
    checks.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    showing = shows.wrap_bio(up, down, server_side=shown_by_server)
    checking = checks.wrap_bio(down, up, server_side=not shown_by_server)
    for _ in range(4):
        for end in (showing, checking):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return error.verify_code, None
            except ssl.SSLError:
                return 0, None  # nothing about dates
    certificate = checking.getpeercert()
    return 0, _validity_of(certificate) if certificate else None


def _loaded(config: TlsConfig, protocol: int) -> ssl.SSLContext:
    """A context that shows the certificate and trusts it alone. Raises ConfigError."""
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        load_pair(context, config)
        context.load_verify_locations(cafile=str(Path(config.certificate).expanduser()))
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            problem = f"does not match its key {config.key}"
        else:
            problem = (
                f"and its key {config.key} are not a PEM certificate and an unencrypted PEM key"
            )
        raise _wrong(config.certificate, problem, "certificate") from None
    except OSError as error:  # taken away since it was read
        raise _unreadable(config.certificate, error) from None
    return context


def _bytes_of(path: str) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: str, error: OSError) -> ConfigError:
    problem = f"the TLS file {path} cannot be read: {os_reason(error)}"
    return ConfigError(problem, path="security.tls")


def _wrong(path: str, problem: str, key: str) -> ConfigError:
    return ConfigError(f"the certificate {path} {problem}", path=f"security.tls.{key}")
