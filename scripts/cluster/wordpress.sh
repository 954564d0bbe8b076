# Debian's WordPress with its default content: one MariaDB for all, and on each host php-fpm behind nginx,
# the back end of the host's gateway. nginx also serves the small text.

# Creates the database, with the installation's contents.
wordpress_prepare() {
    mkdir mariadb settings
    mariadb-install-db --no-defaults --user=root --datadir="$PWD/mariadb" --auth-root-authentication-method=normal \
        --skip-test-db >mariadb.log 2>&1
    mariadbd --no-defaults --user=root --datadir="$PWD/mariadb" --socket="$PWD/mariadb.sock" --skip-networking \
        --pid-file="$PWD/mariadb.pid" --innodb-flush-log-at-trx-commit=0 >>mariadb.log 2>&1 &
    wait_for 60 "the database" mariadb --no-defaults --socket="$PWD/mariadb.sock" --execute='CREATE DATABASE wordpress'
    wordpress_configure
    wordpress_install >wordpress.log 2>&1
}

# Debian's package reads /etc/wordpress. A private mount replaces it here, so that the machine's own is untouched.
wordpress_configure() {
    cat >settings/config-default.php <<END_OF_CONFIG
<?php
define('DB_NAME', 'wordpress');
define('DB_USER', 'root');
define('DB_PASSWORD', '');
define('DB_HOST', 'localhost:$PWD/mariadb.sock');
define('WP_HOME', 'https://$name');
define('WP_SITEURL', 'https://$name');
define('DISABLE_WP_CRON', true);
define('WP_HTTP_BLOCK_EXTERNAL', true);
END_OF_CONFIG
    mount --bind settings /etc/wordpress
}

# Does the work of its installation page.
wordpress_install() {
    HTTP_HOST=$name php -d variables_order=EGPCS -r '
        define("WP_INSTALLING", true);
        $_SERVER += ["HTTP_HOST" => getenv("HTTP_HOST"), "SERVER_PROTOCOL" => "HTTP/1.1", "REQUEST_METHOD" => "GET"];
        require "/usr/share/wordpress/wp-load.php";
        require ABSPATH . "wp-admin/includes/upgrade.php";
        function wp_new_blog_notification() {}
        wp_install("The cluster", "admin", "admin@" . getenv("HTTP_HOST"), true, "", bin2hex(random_bytes(16)));'
}

wordpress_serve() {
    local host=$1 fpm
    fpm=$(compgen -G '/usr/sbin/php-fpm*' | sort --version-sort | tail -n 1)
    cat >"$host/php.conf" <<END_OF_CONFIG
[global]
daemonize = no
error_log = $PWD/$host.log
[www]
user = www-data
listen = $PWD/$host/php.sock
listen.mode = 0666
pm = static
pm.max_children = 4
END_OF_CONFIG
    cat >"$host/nginx.conf" <<END_OF_CONFIG
daemon off;
user www-data;
pid $PWD/$host/nginx.pid;
error_log $PWD/$host.log;
events { }
http {
    include /etc/nginx/mime.types;
    access_log off;
    client_body_temp_path $PWD/$host/nginx;
    fastcgi_temp_path $PWD/$host/nginx;
    server {
        listen 127.0.0.1:8080;
        root /usr/share/wordpress;
        index index.php;
        location = /hello.txt { root $PWD/www; }
        location / { try_files \$uri \$uri/ /index.php?\$args; }
        location ~ \\.php\$ {
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME \$document_root\$fastcgi_script_name;
            fastcgi_pass unix:$PWD/$host/php.sock;
        }
    }
}
END_OF_CONFIG
    # Not as jobs of this shell, which would report their end.
    (ip netns exec "$host" "$fpm" --fpm-config "$host/php.conf" >>"$host.log" 2>&1 &)
    (ip netns exec "$host" nginx -c "$PWD/$host/nginx.conf" >>"$host.log" 2>&1 &)
}

wordpress_answers() {
    curl --silent --fail --max-time 30 --haproxy-protocol --cacert ca.pem --connect-to "$name:443:$(address "$1"):443" \
        "https://$name/" | grep --quiet 'Hello world'
}
