# Debian's sshd for the current user, with its own keys and configuration. Sourced by `run`, which
# defines `home`, `work`, `free_port` and `wait_for_port`. Nothing is installed: the package is only
# unpacked in the cache.

if [ ! -x "$home/sshd/usr/sbin/sshd" ]; then
  echo "unpacking openssh-server"
  mkdir -p "$home/debs"
  (cd "$home/debs" && { apt-get download -qq openssh-server libwrap0 2>/dev/null || { apt-get update -qq && apt-get download -qq openssh-server libwrap0; }; })
  for package in "$home"/debs/*.deb; do dpkg -x "$package" "$home/sshd"; done
  rm -rf "$home/debs"
fi
command -v ssh >/dev/null || apt-get install -y --no-install-recommends openssh-client >/dev/null

# Run by root, sshd drops its privileges, and needs a user and a folder for that.
if [ "$(id -u)" = 0 ]; then
  getent passwd sshd >/dev/null || useradd --system --no-create-home --home-dir /run/sshd --shell /usr/sbin/nologin sshd
  mkdir -p -m 755 /run/sshd
fi

SFTP_HOME=$work/ssh
mkdir -m 700 "$SFTP_HOME"
for key in host key wrong-key; do ssh-keygen -q -t ed25519 -N '' -C "" -f "$SFTP_HOME/$key"; done
ssh-keygen -q -t ed25519 -N "$AWS_SECRET_ACCESS_KEY" -C "" -f "$SFTP_HOME/locked-key"
cat "$SFTP_HOME/key.pub" "$SFTP_HOME/locked-key.pub" >"$SFTP_HOME/authorized_keys"
sftp_port=$(free_port)
cat >"$SFTP_HOME/sshd_config" <<END
ListenAddress 127.0.0.1:$sftp_port
HostKey $SFTP_HOME/host
PidFile none
AuthorizedKeysFile $SFTP_HOME/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
Subsystem sftp internal-sftp
END

# Configurations like in ~/.ssh: a known host, a host that does not accept our key, an unknown host,
# and a host whose key changed.
config() { printf 'Host *\nHostKeyAlias tested\nUserKnownHostsFile %s\nGlobalKnownHostsFile /dev/null\nIdentityFile %s\nIdentitiesOnly yes\nIdentityAgent none\n' "$1" "$SFTP_HOME/${2:-key}"; }
echo "tested $(cat "$SFTP_HOME/host.pub")" >"$SFTP_HOME/known_hosts"
echo "tested $(cat "$SFTP_HOME/wrong-key.pub")" >"$SFTP_HOME/changed_hosts"
config "$SFTP_HOME/known_hosts" >"$SFTP_HOME/ssh_config"
config "$SFTP_HOME/known_hosts" wrong-key >"$SFTP_HOME/ssh_config_stranger"
config /dev/null >"$SFTP_HOME/ssh_config_unknown"
config "$SFTP_HOME/changed_hosts" >"$SFTP_HOME/ssh_config_changed"

LD_LIBRARY_PATH="$home/sshd/usr/lib/$(uname -m)-linux-gnu" "$home/sshd/usr/sbin/sshd" -D -e -f "$SFTP_HOME/sshd_config" >"$work/sshd.log" 2>&1 &
servers+=($!)
wait_for_port "$sftp_port" "${servers[-1]}" "$work/sshd.log"
export SFTP_HOME SFTP_CONFIG=$SFTP_HOME/ssh_config SFTP=$(id -un)@127.0.0.1:$sftp_port
