"""Buckets behind TLS with a private certificate authority, and behind a proxy."""
import asyncio
import contextlib
import datetime
import os
import queue
import shutil
import ssl
import threading
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from support import MIB, S3S, WORK, headworks, make_tree, rclone


def write_certificates():
    """Writes the certificate of an authority, and one that it issued for localhost."""
    key = lambda: ec.generate_private_key(ec.SECP256R1())
    name = lambda text: x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])
    now = datetime.datetime.now(datetime.timezone.utc)

    def certificate(subject, public, issuer, signer, extension):
        builder = x509.CertificateBuilder(name(issuer), name(subject), public.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
        return builder.add_extension(extension, True).sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    authority_key, server_key = key(), key()
    root = certificate("some authority", authority_key, "some authority", authority_key, x509.BasicConstraints(True, None))
    leaf = certificate("here", server_key, "some authority", authority_key, x509.SubjectAlternativeName([x509.DNSName("localhost")]))
    secret = server_key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    for file, text in (("authority.pem", root), ("here.pem", leaf + secret)):
        with open(f"{WORK}/{file}", "wb") as out:
            out.write(text)


def through_a_proxy_and_with_a_private_authority():
    """Uses TLS with a private authority and the proxy of the environment; signatures stay valid."""
    write_certificates()
    seen = []

    async def forward(reader, writer):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def connect(one, port):
        with contextlib.suppress(ConnectionError):
            other = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(forward(one[0], other[1]), forward(other[0], one[1]))

    async def tunnel(reader, writer):
        line = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode()
        seen.append(line)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await connect((reader, writer), int(line.split()[1].split(":")[1]))

    async def serve(ready):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(f"{WORK}/here.pem")
        upstream = urlsplit(S3S).port
        secure = await asyncio.start_server(lambda *one: connect(one, upstream), "127.0.0.1", 0, ssl=context)
        proxy = await asyncio.start_server(tunnel, "127.0.0.1", 0)
        ready.put([server.sockets[0].getsockname()[1] for server in (secure, proxy)])
        await asyncio.Event().wait()

    ready = queue.Queue()
    threading.Thread(target=lambda: asyncio.run(serve(ready)), daemon=True).start()
    secure, proxy = ready.get()
    here, state = f"{WORK}/secure-here", f"{WORK}/secure.db"
    make_tree(here, folders=1, files=4, large=(9 * MIB,))
    shutil.rmtree(f"{here}/names")
    shutil.rmtree(f"{here}/empty")
    location = f"s3://secure?endpoint=https://localhost:{secure}"
    environment = dict(os.environ, HTTPS_PROXY=f"http://127.0.0.1:{proxy}", AWS_CA_BUNDLE=f"{WORK}/authority.pem")
    for name in ("NO_PROXY", "no_proxy"):
        del environment[name]
    headworks("run", here, location, "--state", state, env=environment)
    rclone("check", "--download", here, "r:secure", endpoint=S3S)
    assert seen and set(seen) == {f"CONNECT localhost:{secure} HTTP/1.1"}, seen
    del environment["AWS_CA_BUNDLE"]
    output = headworks("plan", here, location, "--state", f"{WORK}/untrusted.db", env=environment, codes=(1, 3), stderr=True)
    output += headworks("report", "--state", f"{WORK}/untrusted.db", codes=(0, 1, 3))
    assert "certificate" in output, output


TESTS = {"through a proxy and with a private authority": through_a_proxy_and_with_a_private_authority}
