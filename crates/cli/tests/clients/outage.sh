#!/usr/bin/env bash
# The tracker finds an outage of its own network and recovers from it. Its forwarders are in another
# network namespace.
#
# usage: unshare -rnm outage.sh HEADWORKS FOLDER near|far
#   near: this machine's link goes down, and the kernel refuses to send
#   far: the other end goes down, and packets are lost
set -euo pipefail
headworks=$1 folder=$2 side=$3

# `ip netns` keeps names in /run; this mount is private.
mount -t tmpfs none /run
mkdir /run/netns
ip link set lo up
ip netns add far
ip link add near0 type veth peer name far0 netns far
ip addr add 10.78.0.1/24 dev near0
ip link set near0 up
forwarders=
for n in 2 3 4 5 6 7 8 9; do
  ip -n far addr add "10.78.0.$n/24" dev far0
  forwarders="$forwarders,10.78.0.$n:6969"
  echo "udp://10.78.0.$n:6969/announce" >>"$folder/list.txt"
done
ip -n far link set far0 up
ip -n far link set lo up

ip netns exec far "$headworks" tracker -l 10.78.0.2:6969 -u "${forwarders#,}" --admin-listen 127.0.0.1:0 \
  2>"$folder/far.log" &
processes=$!
trap 'kill $processes 2>/dev/null || true; wait' EXIT
wait_for() { # wait_for WHAT COMMAND…: until the command succeeds
  local what=$1 end=$((SECONDS + 90))
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
wait_for "the forwarders listen" grep -q 'tracker: http' "$folder/far.log"
"$headworks" tracker -l 127.0.0.1:6969 -u '' -f "$folder/list.txt" -t 2 --admin-listen 127.0.0.1:0 \
  2>"$folder/near.log" &
processes="$processes $!"
wait_for "the tracker listens" grep -q 'tracker: http' "$folder/near.log"

get() { curl --silent --noproxy '*' "http://127.0.0.1:6969$1"; }
announce() { # announce LETTER: of a torrent
  get "/announce?info_hash=$(printf "$1%.0s" {1..20})&peer_id=bbbbbbbbbbbbbbbbbbbb&port=5&left=1" >/dev/null
}
shows() { get /metrics | grep -qFx "$1"; }
answers() { [ "$(get /stats | grep -c ": active.* [1-9][0-9]* answers")" = 8 ]; }
active() { [ "$(get /metrics | grep -c '^forwarder_status{.*status="active"} 1$')" = 8 ]; }
known() { # known N: torrents at the forwarders, which are one tracker
  ip netns exec far curl --silent --noproxy '*' http://10.78.0.2:6969/stats | grep -q "^torrents: $1$"
}

announce a
wait_for "every forwarder responds" answers
for outage in 1 2; do
  case "$side" in
    near) ip link set near0 down ;;
    far) ip -n far link set far0 down ;;
  esac
  announce "$outage"
  wait_for "the outage is found" shows "headworks_tracker_network_down 1"
  wait_for "no forwarder is blamed" active
  case "$side" in
    near) ip link set near0 up ;;
    far) ip -n far link set far0 up ;;
  esac
  wait_for "the network is up again" shows "headworks_tracker_network_down 0"
  wait_for "no forwarder is blamed afterwards" active
  wait_for "the torrent of the outage is announced" known $((outage + 1))
  shows "headworks_tracker_outages_total $outage" || { echo "not $outage outages" >&2; exit 1; }
done
