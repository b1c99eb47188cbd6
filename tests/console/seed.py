"""A torrent client that seeds one small file through a tracker until it is ended."""

import pathlib
import sys
import time

import libtorrent as lt

folder, tracker = pathlib.Path(sys.argv[1]), sys.argv[2]
(folder / "file").write_bytes(b"water" * 4000)
files = lt.file_storage()
lt.add_files(files, str(folder / "file"))
made = lt.create_torrent(files, flags=lt.create_torrent.v1_only)
lt.set_piece_hashes(made, str(folder))
info = lt.torrent_info(lt.bdecode(lt.bencode(made.generate())))
session = lt.session({"listen_interfaces": "127.0.0.1:0", "enable_dht": False, "enable_lsd": False})
handle = session.add_torrent({"ti": info, "save_path": str(folder), "trackers": [tracker]})
print("seeding", flush=True)
while True:
    time.sleep(1)
