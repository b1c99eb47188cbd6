"""Seeds a file with libtorrent through one tracker and downloads it through another, with libtorrent or aria2.

usage: download.py FOLDER SEEDERS_TRACKER LEECHERS_TRACKER ADDRESS libtorrent|aria2
"""

import os
import subprocess
import sys
import time

import libtorrent as lt

folder, seeders, leechers, address, client = sys.argv[1:]
seed, leech = os.path.join(folder, "seed"), os.path.join(folder, "leech")
os.makedirs(seed)
os.makedirs(leech)
data = os.urandom(300_000)
with open(os.path.join(seed, "file.bin"), "wb") as file:
    file.write(data)


def torrent(tracker):
    files = lt.file_storage()
    lt.add_files(files, os.path.join(seed, "file.bin"))
    made = lt.create_torrent(files, flags=lt.create_torrent.v1_only)
    made.add_tracker(tracker)
    lt.set_piece_hashes(made, seed)
    return made.generate()


def session():
    off = ["enable_dht", "enable_lsd", "enable_upnp", "enable_natpmp"]
    settings = {name: False for name in off}
    settings["listen_interfaces"] = f"{address}:0"
    settings["allow_multiple_connections_per_ip"] = True
    return lt.session(settings)


def downloaded():
    try:
        with open(os.path.join(leech, "file.bin"), "rb") as file:
            return file.read() == data
    except FileNotFoundError:
        return False


seeder = session()
seeding = seeder.add_torrent(
    {"ti": lt.torrent_info(torrent(seeders)), "save_path": seed, "flags": lt.torrent_flags.seed_mode}
)
end = time.time() + 60
while not any(endpoint["info_hashes"][0]["start_sent"] if "info_hashes" in endpoint else endpoint["start_sent"] for tracker in seeding.trackers() for endpoint in tracker["endpoints"]):
    assert time.time() < end, "the seeder's tracker never answered"
    time.sleep(0.1)

if client == "aria2":
    path = os.path.join(folder, "file.torrent")
    with open(path, "wb") as file:
        file.write(lt.bencode(torrent(leechers)))
    # aria2 speaks to UDP trackers through its DHT socket only.
    dht = ["--enable-dht=true", "--dht-entry-point=127.0.0.1:1", f"--dht-file-path={folder}/dht.dat"]
    options = [*dht, "--bt-enable-lpd=false", "--seed-time=0", "--quiet", "--no-conf", f"--dir={leech}"]
    subprocess.run(["aria2c", *options, path], check=True, timeout=60)
else:
    leecher = session()
    leeching = leecher.add_torrent({"ti": lt.torrent_info(torrent(leechers)), "save_path": leech})
    asked = time.time()
    while not leeching.status().is_seeding:
        assert time.time() < end, "never downloaded"
        if time.time() > asked + 2:
            # A client asks again when it has no peers; ours need not wait for its timer.
            leeching.force_reannounce(0, -1, lt.reannounce_flags_t.ignore_min_interval)
            asked = time.time()
        time.sleep(0.1)
while not downloaded():
    assert time.time() < end, "the file is not what was seeded"
    time.sleep(0.1)
