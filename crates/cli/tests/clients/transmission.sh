#!/usr/bin/env bash
# A seeder and a leecher of transmission find each other through a tracker, each in its own network
# namespace.
#
# usage: unshare -rnm transmission.sh HEADWORKS FOLDER http|udp 4|6
set -euo pipefail
headworks=$1 folder=$2 transport=$3 family=$4

# `ip netns` keeps names in /run; this mount is private.
mount -t tmpfs none /run
mkdir /run/netns
ip link set lo up
ip link add hub type bridge
ip addr add 10.77.0.1/24 dev hub
ip addr add 2600:77::1/64 dev hub nodad
ip link set hub up
for n in 2 3; do
  ip netns add "client$n"
  ip link add "cable$n" type veth peer name eth0 netns "client$n"
  ip link set "cable$n" master hub up
  ip -n "client$n" addr add "10.77.0.$n/24" dev eth0
  ip -n "client$n" addr add "2600:77::$n/64" dev eth0 nodad
  ip -n "client$n" link set eth0 up
  ip -n "client$n" link set lo up
  # transmission uses IPv6 only with a route to the Internet.
  ip -n "client$n" -6 route add default via 2600:77::1
done

at=10.77.0.1:6969
[ "$family" = 6 ] && at='[2600:77::1]:6969'
"$headworks" tracker -l "$at" -u "$at" --admin-listen 127.0.0.1:0 2>"$folder/tracker.log" &
processes=$!
trap 'kill $processes 2>/dev/null || true; wait' EXIT

wait_for() { # wait_for WHAT COMMAND…: until the command succeeds
  local what=$1 end=$((SECONDS + 60))
  shift
  until "$@"; do
    if [ "$SECONDS" -ge "$end" ]; then
      echo "never: $what" >&2
      tail -n 20 "$folder"/*.log >&2
      exit 1
    fi
    sleep 0.1
  done
}
wait_for "the tracker listens" grep -q 'tracker: http' "$folder/tracker.log"

mkdir -p "$folder/seed" "$folder/leech"
head -c 300000 /dev/urandom >"$folder/seed/file.bin"
transmission-create -o "$folder/file.torrent" -t "$transport://$at/announce" "$folder/seed/file.bin" >/dev/null

client() { # client NETWORK ROLE
  mkdir -p "$folder/$2.conf"
  # Only the tracker may bring them together.
  echo '{"dht-enabled": false, "lpd-enabled": false, "pex-enabled": false, "port-forwarding-enabled": false}' \
    >"$folder/$2.conf/settings.json"
  ip netns exec "$1" transmission-cli -g "$folder/$2.conf" -w "$folder/$2" "$folder/file.torrent" \
    >"$folder/$2.log" 2>&1 &
  processes="$processes $!"
}
seeds() { curl --silent --noproxy '*' "http://$at/stats" | grep -q '^peers: 1'; }
client client2 seed
wait_for "the seeder announces itself" seeds
client client3 leech
wait_for "the file is there" cmp --silent "$folder/seed/file.bin" "$folder/leech/file.bin"
