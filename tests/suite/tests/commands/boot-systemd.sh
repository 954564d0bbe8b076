#!/bin/bash
# Boots systemd in namespaces of its own, over this machine's files: what it changes there is in memory, and gone at
# its end. boot-systemd.sh FOLDER...: folders that are seen inside, too, wherever they are mounted. They are read-only.
set -euo pipefail
[ "${INSIDE-}" ] || INSIDE=1 exec unshare --mount --net --pid --fork --uts --ipc --cgroup --kill-child -- "$0" "$@"

mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /mnt
mkdir /mnt/{upper,work,root}
mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/root
cd /mnt/root
for folder; do
    mkdir -p ".$folder"
    mount --bind "$folder" ".$folder"
    mount -o remount,bind,ro ".$folder"
done
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount --rbind /dev dev
# Nothing of this machine starts but the journal.
units=lib/systemd/system
rm -rf lib/systemd/system-generators/* etc/systemd/system/*.wants $units/*.target.wants
mkdir $units/sysinit.target.wants
ln -s ../systemd-journald.service $units/sysinit.target.wants
: >etc/fstab
ip link set lo up
mkdir -p mnt/before
pivot_root . mnt/before
cd /
umount -l /mnt/before
# Credentials of units reach them through it.
mount --make-rshared /
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit=basic.target --show-status=no --log-target=console
