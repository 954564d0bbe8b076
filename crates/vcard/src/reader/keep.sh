# Keeps a pcscd for as long as its parent lives: keep.sh FOLDER PCSCD isolated|shared
# Standard input is the socket that pcscd listens on; standard output is one end of a socket: the
# process id of pcscd goes up, "end" comes down. An end without that word is the parent's death.
exec 3<&0 4<&1 </dev/null >&2
if [ "$3" = isolated ]; then
    # vpcd listens on all interfaces; pcscd writes its id where the machine's own does; and with the
    # drivers of USB readers it would take the machine's own readers.
    ip link set lo up && mkdir -p /run/pcscd && mount -t tmpfs none /run/pcscd &&
        mount -t tmpfs none /usr/lib/pcsc/drivers || exit 1
fi
# As if from systemd, see sd_listen_fds(3). With this shell it ends, however this shell ends.
LISTEN_FDS=1 setpriv --pdeathsig KILL sh -c \
    'LISTEN_PID=$$ exec "$1" --foreground --config "$0/readers"' "$1" "$2" 4<&- &
exec 3<&-
echo $! >&4
read -r word <&4
kill $!
wait $!
[ "$word" = end ] || rm -rf -- "$1"
