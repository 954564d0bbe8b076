//! Each possible mistake of the file, by itself.

use super::{GOOD, read};

/// A line of the good file, its replacement, and the line and words of the expected mistake.
const MISTAKES: &[(&str, &str, usize, &str)] = &[
    (
        r#"label = "web""#,
        r#"lable = "web""#,
        2,
        "did you mean \"label\"",
    ),
    (
        r#"label = "web""#,
        "label = 7",
        2,
        "expected text in quotes, found integer",
    ),
    (r#"label = "web""#, r#"label = """#, 2, "empty"),
    (
        "[daemon]",
        "[deamon]",
        8,
        "unknown section \"deamon\" in the file; did you mean \"daemon\"",
    ),
    (
        "queue = 1024",
        "queue = \"1024\"",
        5,
        "expected a number, found string",
    ),
    ("queue = 1024", "queue = 0", 5, "from 1 to 1000000"),
    ("queue = 1024", "queue = -1", 5, "expected a number"),
    ("queue = 1024", "queue == 1024", 5, ""),
    ("queue = 1024", "quue = 1024", 5, "did you mean \"queue\""),
    (
        "queue = 1024",
        "socket = \"s\"",
        5,
        "unknown key \"socket\" in [pool]; it belongs in [daemon] or [[listener]] or",
    ),
    (r#""30s""#, r#""30""#, 6, "ms, s, m or h"),
    (r#""30s""#, r#""0s""#, 6, "from 1ms to 24h"),
    (r#""30s""#, "30", 6, "expected text in quotes"),
    (
        "round-robin",
        "round-robbin",
        3,
        "did you mean \"round-robin\"",
    ),
    ("read_only = false", "read_only = 0", 4, "true or false"),
    (r#""0660""#, r#""0888""#, 10, "octal"),
    (r#""0660""#, "660", 10, "octal permissions in quotes"),
    ("33]", "1.5]", 11, "text in quotes"),
    (
        "pkcs11:object=web",
        "pkcs11:objekt=web",
        12,
        "did you mean \"object\"",
    ),
    (r#"login = "pin""#, r#"login = "peer""#, 14, "needs no PIN"),
    (
        "{ file = \"pool.pin\" }",
        "\"1234\"",
        14,
        "a PIN is named by its place",
    ),
    (
        "{ file = \"pool.pin\" }",
        "{ fil = \"pool.pin\" }",
        14,
        "\"fil\" is unknown",
    ),
    ("token=hsm1", "object=hsm1", 18, "names no token"),
    (
        "token=hsm1",
        "token=hsm1?pin-value=1234",
        18,
        "does not belong in a URI",
    ),
    (
        "token=hsm1",
        "token=hsm1?pin-source=x",
        18,
        "keys of their own",
    ),
    (
        r#"uri = "pkcs11:token=hsm1""#,
        "",
        16,
        "needs uri; for example uri = ",
    ),
    (
        r#"isolation = "process""#,
        r#"isolation = "thread""#,
        22,
        "needs isolation = \"process\"",
    ),
    ("serial=42", "token=hsm1", 27, "stands already in line 16"),
    (
        "[daemon]",
        "[module]\nmode = \"embedded\"\n[daemon]\nread_only = true",
        9,
        "exclude each other",
    ),
    (
        "[daemon]",
        "[module]\nsocket = \"other\"\n[daemon]",
        9,
        "no listener of this file",
    ),
    (
        "[daemon]",
        "[admin]\nsocket = \"run/hsmux.sock\"\n[daemon]",
        9,
        "a listener of its own",
    ),
    (
        "[daemon]",
        "[[listener]]\n[daemon]",
        8,
        "needs socket; for example socket = ",
    ),
    (
        "[daemon]",
        "[[listener]]\nsocket = \"run/hsmux.sock\"\n[daemon]",
        9,
        "stands already",
    ),
    ("[daemon]", "[broker]\n[daemon]", 8, "listens nowhere"),
    (
        "[daemon]",
        "[broker]\nlisten = []\n[daemon]",
        9,
        "listens nowhere",
    ),
    (
        "[daemon]",
        "[traces]\n[daemon]",
        8,
        "needs endpoint; for example endpoint = ",
    ),
    (
        "[daemon]",
        "[traces]\nendpoint = \"collector:4318\"\n[daemon]",
        9,
        "neither with http: nor with https:",
    ),
    (
        "[daemon]",
        "[traces]\nendpoint = \"http://collector\"\nca = \"ca.pem\"\n[daemon]",
        10,
        "begins with https:",
    ),
    (
        "[daemon]",
        "[traces]\nendpoint = \"http://collector\"\nsample = 1.5\n[daemon]",
        10,
        "from 0 to 1",
    ),
    (
        "[daemon]",
        "[traces]\nendpoint = \"http://collector\"\nsamples = 1\n[daemon]",
        10,
        "did you mean \"sample\"",
    ),
    (
        "[daemon]",
        "[node]\ncertificate = \"a.pem\"\nkey = \"a.key\"\nca = \"ca.pem\"\nuser = 7\n\
         [[token]]\nnode = \"b.example:9\"\n[daemon]",
        12,
        "cannot be another user's",
    ),
    (
        "[daemon]",
        "[[site]]\ncertificates = [\"a.pem\"]\nroot = \"www\"\n[daemon]",
        8,
        "is for the gateway: add [gateway]",
    ),
    (
        "[daemon]",
        "[gateway]\nlisten = [\"[::1]:443\"]\n[[site]]\ncertificates = [\"a.pem\"]\n[daemon]",
        10,
        "needs one of backend",
    ),
    (
        "[daemon]",
        "[gateway]\nlisten = [\"[::1]:443\"]\n[[site]]\ncertificates = [\"a.pem\"]\n\
         keys = []\nroot = \"www\"\n[daemon]",
        12,
        "one for each of certificates",
    ),
    (
        "[daemon]",
        "[gateway]\nlisten = [\"[::1]:443\"]\nacme = \"www\"\n\
         [[site]]\ncertificates = [\"a.pem\"]\nroot = \"www\"\n[daemon]",
        10,
        "give the port, [gateway] http = [\"0.0.0.0:80\"]",
    ),
    (
        "[daemon]",
        "[gateway]\nlisten = [\"[::1]:443\"]\nhttp = [\"[::1]:80\"]\nacme = \"https://[::1]:8080\"\n\
         [[site]]\ncertificates = [\"a.pem\"]\nroot = \"www\"\n[daemon]",
        11,
        "neither http://HOST:PORT nor a folder",
    ),
    (
        "[daemon]",
        "[gateway]\nlisten = [\"[::1]:443\"]\n[[site]]\ncertificates = [\"a.pem\"]\nroot = \"www\"\n\
         acme = \"acme\"\n[daemon]",
        13,
        "give the port, [gateway] http",
    ),
    (
        "[daemon]",
        "[gateway]\nlisten = [\"[::1]:443\"]\nhttp = [\"[::1]:443\"]\n\
         [[site]]\ncertificates = [\"a.pem\"]\nroot = \"www\"\n[daemon]",
        10,
        "is taken by listen or metrics",
    ),
    (
        "[daemon]",
        "[gateway]\nlisten = [\"[::1]:443\"]\n[[site]]\ncertificates = [\"a.pem\"]\n\
         backend = \"http://[::1]:80\"\nbackend_ca = \"ca.pem\"\n[daemon]",
        13,
        "is for an https:// or h2:// backend",
    ),
    (
        "[daemon]",
        "[gateway]\nlisten = [\"[::1]:443\"]\n[[site]]\ncertificates = [\"a.pem\"]\n\
         backend = \"tcp://[::1]:80\"\nbackend_check = \"/health\"\n[daemon]",
        13,
        "it is for no tcp:// backend",
    ),
    (
        "[daemon]",
        "[gateway]\nlisten = [\"[::1]:443\"]\n[[site]]\ncertificates = [\"a.pem\"]\n\
         backend = \"http://[::1]:80\"\nbackend_check = \"http://a.test/\"\n[daemon]",
        13,
        "is no path of a URL",
    ),
    (
        "[daemon]",
        "[gateway]\nlisten = [\"[::1]:443\"]\n[[site]]\ncertificates = [\"a.pem\"]\n\
         backend = \"http://[::1]:80\"\nbackend_check_interval = \"1s\"\n[daemon]",
        13,
        "give backend_check",
    ),
    (
        "[daemon]",
        "[gateway]\nlisten = [\"[::1]:443\"]\n[[site]]\ncertificates = [\"a.pem\"]\n\
         backend = \"http://[::1]:80\"\nbackend_check = \"/\"\nbackend_check_interval = \"1ms\"\n[daemon]",
        14,
        "from 100ms to 1h",
    ),
    (
        "[daemon]",
        "[gateway]\nlisten = [\"[::1]:443\"]\n[[site]]\ncertificates = [\"a.pem\"]\n\
         backend = \"https://[::1]:80/path\"\n[daemon]",
        12,
        "is none of http://HOST:PORT, https://HOST[:PORT]",
    ),
    (
        "[daemon]",
        "[gateway]\nlisten = [\"[::1]:443\"]\n[[site]]\ncertificates = [\"a.pem\"]\n\
         backend = []\n[daemon]",
        12,
        "the list is empty",
    ),
    (
        "[daemon]",
        "[gateway]\nlisten = [\"[::1]:443\"]\n[[site]]\ncertificates = [\"a.pem\"]\n\
         backend = [\"http://[::1]:80\", \"http://[::1]:80/\"]\n[daemon]",
        12,
        "stands there twice",
    ),
    (
        "[daemon]",
        "[gateway]\nlisten = [\"[::1]:443\"]\n[[site]]\ncertificates = [\"a.pem\"]\n\
         backend = [\"http://[::1]:80\", \"tcp://[::1]:80\"]\n[daemon]",
        12,
        "cannot take turns",
    ),
    (
        "[daemon]",
        "[gateway]\nlisten = [\"[::1]:443\"]\n[[site]]\ncertificates = [\"a.pem\"]\n\
         backend = [\"http://[::1]:80\", \"h2c://[::1]:81\"]\n[daemon]",
        12,
        "cannot take turns",
    ),
    (
        "[[token]]\nmodule = \"vendor.so\"",
        "[token]\nmodule = \"vendor.so\"",
        27,
        "",
    ),
];

#[test]
fn each_mistake_has_its_line_and_says_what_to_write() {
    for (good, bad, line, words) in MISTAKES {
        assert!(GOOD.contains(good), "{good}");
        let mistakes = read(&GOOD.replacen(good, bad, 1)).unwrap_err();
        assert!(
            mistakes
                .iter()
                .any(|m| m.line == *line && m.message.contains(words)),
            "{bad}: {mistakes:#?}"
        );
    }
}
