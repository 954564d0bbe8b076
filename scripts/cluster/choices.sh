# The choices in the environment, and their validation.

refuse() {
    echo "$1" >&2
    exit 2
}

TOKENS=${TOKENS:-cards}
case $TOKENS in cards | softhsm) ;; *) refuse "TOKENS is cards or softhsm, not $TOKENS" ;; esac

# The published table has all of these in files, and those that a SmartCard-HSM supports also in tokens.
known="ec-prime256v1 rsa-1024 rsa-2048 rsa-4096 rsa-8192"
KEYS=${KEYS:-${FULL:+$known}}
KEYS=${KEYS:-ec-prime256v1 rsa-2048}
for key in $KEYS; do
    [[ " $known " == *" $key "* ]] || refuse "KEYS are some of $known, not $key"
done
[[ $KEYS =~ ec-|rsa-1024|rsa-2048 ]] || refuse "KEYS: tokens have ec-prime256v1, rsa-1024 or rsa-2048: name one of them, too"

HSMS=${HSMS:-0 1 2 3}
for hsms in $HSMS; do
    [[ $hsms == [0-3] ]] || refuse "HSMS are some of 0, 1, 2 and 3, not $hsms"
done
export TOKENS KEYS HSMS

needs=(hsmux hsmux-lab ip unshare nsenter openssl curl jq socat haproxy pkcs11-tool) packages=cluster
[ "$TOKENS" = cards ] && needs+=(pcscd) || needs+=(softhsm2-util)
[ -z "${WORDPRESS-}" ] || {
    needs+=(mariadbd mariadb nginx php /usr/share/wordpress/wp-load.php)
    packages=wordpress
}
