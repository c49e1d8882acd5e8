#!/bin/sh
# Installs the Debian packages whose programs some tests run, if this is root. Tests without their
# program are skipped, and say so. Packages that would start a service are for containers only.
updated=

need() { # package, a pattern of its program, what is tested with it, whether it starts a service
    ls $2 > /dev/null 2>&1 && return
    if [ "$(id -u)" = 0 ] && { [ -z "$4" ] || [ ! -d /run/systemd/system ]; }; then
        echo "Installing Debian's package $1 (once)"
        [ -n "$updated" ] || apt-get update > /dev/null 2>&1
        updated=yes
        RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install --no-install-recommends --yes "$1" \
            < /dev/null > /dev/null 2>&1
        ls $2 > /dev/null 2>&1 && return
    fi
    echo "Tests of $3 will be skipped. As root: apt-get install --no-install-recommends $1"
}

need chromium /usr/bin/chromium "pages"
need openssh-server /usr/sbin/sshd "folders over SFTP" service
need postgresql '/usr/lib/postgresql/*/bin/initdb' "PostgreSQL" service
