# The site: the published small text, and a certificate of a new root for each key. Private keys never leave the tokens.
# For measurements without tokens other keys are in files: file-KEY.pem and file-KEY.key.

page=static
[ -z "${WORDPRESS-}" ] || page=wordpress

site_prepare() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj "/CN=the cluster's root" \
        -keyout ca.key -out ca.pem 2>openssl.log
    printf 'subjectAltName = DNS:%s\n' "$name" >names.ext
    mkdir www
    echo 'hello, world' >www/hello.txt

    for host in "${hosts[@]}"; do host_configure "$host"; done
    "${TOKENS}_start" host1 none
    # Without its [gateway], which needs the certificates.
    sed '/^\[gateway\]/,/^$/d' host1/base.toml >host1/hsmux.toml
    at host1 hsmux --config host1/hsmux.toml serve >>host1.log 2>&1 &
    local daemon=$!
    wait_for 60 "the daemon of host1" hsmux --config host1/hsmux.toml status --check
    for key in "${!keys[@]}"; do
        show hsmux --config host1/hsmux.toml key csr "pkcs11:object=$key" --subject "CN=$name" --name "$name" --out "$key.csr"
        certify "$key"
    done
    hsmux --config host1/hsmux.toml stop
    wait "$daemon"
    "${TOKENS}_stop" host1
    site_use "$page" "${!keys[@]}"
}

site_file() {
    local kind=("rsa:${1#rsa-}")
    [[ $1 == rsa-* ]] || kind=(ec -pkeyopt "ec_paramgen_curve:${1#ec-}")
    openssl req -new -newkey "${kind[@]}" -nodes -subj "/CN=$name" -keyout "file-$1.key" -out "file-$1.csr" 2>>openssl.log
    certify "file-$1"
}

certify() {
    openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -days 30 -extfile names.ext -out "$1.pem" 2>>openssl.log
}

# Configures the hosts for this page with these certificates, for keys in tokens or in a file.
site_use() {
    local certificates serves="root = \"$CLUSTER_WORK/www\""
    [ "$1" = static ] || serves='backend = "http://127.0.0.1:8080"'
    shift
    certificates=$(printf "\"$CLUSTER_WORK/%s.pem\", " "$@")
    for host in "${hosts[@]}"; do
        {
            cat "$host/base.toml"
            printf '\n[[site]]\ncertificates = [%s]\n%s\n' "${certificates%, }" "$serves"
            [ ! -e "$1.key" ] || printf 'keys = ["%s/%s.key"]\n' "$CLUSTER_WORK" "$1"
            [[ $* != *rsa-1024* ]] || echo 'allow_rsa_1024 = true'
        } >"$host/hsmux.toml.new"
        mv "$host/hsmux.toml.new" "$host/hsmux.toml"
    done
}

# The same for running hosts.
site_serve() {
    site_use "$@"
    for host in "${hosts[@]}"; do hsmux --config "$host/hsmux.toml" reload >/dev/null; done
}

# Whether this host serves the certificate for this key.
site_shows() {
    # Debian's OpenSSL accepts RSA-1024 only at security level 0.
    curl --silent --max-time 30 --ciphers DEFAULT@SECLEVEL=0 --haproxy-protocol --cacert ca.pem \
        --connect-to "$name:443:$(address "$1"):443" --output /dev/null --write-out '%{certs}' "https://$name/" |
        grep --quiet --fixed-strings "$(sed -n 3p "$2.pem")"
}
