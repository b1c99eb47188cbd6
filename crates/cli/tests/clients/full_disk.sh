#!/usr/bin/env bash
# The tracker's snapshot on a disk that is full for a while.
#
# usage: unshare -rm full_disk.sh HEADWORKS FOLDER
set -euo pipefail
headworks=$1 folder=$2
mkdir "$folder/disk"
mount -t tmpfs -o size=64k none "$folder/disk"
tracker=
trap '[ -z "$tracker" ] || kill "$tracker" 2>/dev/null || true' EXIT

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
start() { # start LOG: a tracker with a torrent
  "$headworks" tracker -l 127.0.0.1:0 -u '' --tracker-snapshot-file "$folder/disk/snapshot" \
    --tracker-snapshot-interval 1 --admin-listen 127.0.0.1:0 2>"$folder/$1.log" &
  tracker=$!
  wait_for "the tracker listens" grep -q 'tracker: http' "$folder/$1.log"
  local at
  at=$(sed -n 's/^tracker: \(http:[^ ]*\).*/\1/p' "$folder/$1.log")
  curl --silent --noproxy '*' "$at?info_hash=aaaaaaaaaaaaaaaaaaaa&peer_id=bbbbbbbbbbbbbbbbbbbb&port=5&left=1" >/dev/null
}
stop() { # stop CODE: ends the tracker, which must exit with that code
  local code=0
  kill -TERM "$tracker"
  wait "$tracker" || code=$?
  [ "$code" = "$1" ] || { echo "exit code $code instead of $1" >&2; cat "$folder"/*.log >&2; exit 1; }
}

start first
saved() { grep -qas aaaaaaaaaaaaaaaaaaaa "$folder/disk/snapshot"; }
wait_for "the torrent is saved" saved
cat /dev/zero >"$folder/disk/filler" 2>/dev/null || true
wait_for "the failure is logged" grep -q 'cannot write the snapshot' "$folder/first.log"
stop 3
saved || { echo "the last good snapshot is gone" >&2; exit 1; }
[ ! -e "$folder/disk/snapshot.new" ] || { echo "an incomplete file is left" >&2; exit 1; }

# With room again, the last snapshot succeeds.
rm "$folder/disk/filler"
start second
cat /dev/zero >"$folder/disk/filler" 2>/dev/null || true
wait_for "the failure is logged" grep -q 'cannot write the snapshot' "$folder/second.log"
rm "$folder/disk/filler"
stop 0
