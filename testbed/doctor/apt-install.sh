#!/bin/sh
# Installs packages of Debian or Ubuntu: apt-install.sh PACKAGE... Nobody is asked anything, and nothing of them listens
# on this machine's network because of us. Run by `testbed doctor --fix` and setup.sh; needs root.
set -e
export DEBIAN_FRONTEND=noninteractive
echo "apt-get update"
apt-get -q -o DPkg::Lock::Timeout=300 update || echo "apt-get update failed; trying with the old lists"
answer() { # beforehand what a package may ask; where debconf cannot be asked now, its own answer is the same
    command -v debconf-set-selections >/dev/null || return 0
    echo "$*" | debconf-set-selections 2>&1 || echo "$1: left as the distribution has it"
}
answer wireshark-common wireshark-common/install-setuid boolean false
answer iperf3 iperf3/start_daemon boolean false
sshd=no
case " $* " in *" openssh-server "*) # its tests start one of their own: the machine's must not listen because of us
    sshd=yes
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
        trap 'exit 130' INT # a shell may end by a signal without its EXIT trap
        trap 'exit 143' TERM HUP
        printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
        chmod +x /usr/sbin/policy-rc.d
    fi ;;
esac
apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@" </dev/null
[ $sshd = no ] || systemctl disable ssh.service ssh.socket >/dev/null 2>&1 || true
