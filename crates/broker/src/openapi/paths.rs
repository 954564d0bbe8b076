//! Every path with its methods: a row each.

use super::fields::{Body, Field, Kind, field};

/// A method of a path.
pub struct Operation {
    pub method: &'static str,
    pub summary: &'static str,
    /// Parameters of the query.
    pub query: &'static [Field],
    /// What it takes.
    pub body: Option<Body>,
    pub answer: Answer,
    /// Whether it needs no token.
    pub open: bool,
}

/// What it is answered with when all is well.
#[derive(Clone, Copy)]
pub enum Answer {
    /// 204.
    Nothing,
    /// The envelope around these.
    Data(&'static [Field]),
    /// The same, or the results of a batch.
    Batch(&'static [Field]),
    /// JSON without an envelope.
    Plain(&'static [Field]),
    /// Prometheus' text.
    Text,
}

const fn operation(method: &'static str, summary: &'static str, answer: Answer) -> Operation {
    Operation {
        method,
        summary,
        query: &[],
        body: None,
        answer,
        open: false,
    }
}

impl Operation {
    const fn takes(mut self, body: Body) -> Self {
        self.body = Some(body);
        self
    }

    const fn asks(mut self, query: &'static [Field]) -> Self {
        self.query = query;
        self
    }

    const fn open(mut self) -> Self {
        self.open = true;
        self
    }
}

/// A path with the methods that write: the dialect takes POST and PUT for each.
macro_rules! written {
    ($summary:literal, $body:expr, $answer:expr) => {
        &[
            operation("post", $summary, $answer).takes($body),
            operation("put", $summary, $answer).takes($body),
        ]
    };
}

const VERSION: Field = field("key_version", Kind::Number);
const BITS: Field = field("bits", Kind::Number);
const ASSOCIATED_DATA: Field = field("associated_data", Kind::Base64);
const NONCE: Field = field("nonce", Kind::Base64);
const PADDING: Field = field("padding_scheme", Kind::Word(&["oaep", "pkcs1v15"]));
const OAEP_HASH: Field = field("oaep_hash", Kind::Hash);
const MODE: Field = field("mode", Kind::Word(&["gcm", "cbc"]));
const EXPORTABLE: Field = field("exportable", Kind::Flag);
const BACKUP: Field = field("allow_plaintext_backup", Kind::Flag);
const INPUT: Field = field("input", Kind::Base64);

const CRYPT: &[Field] = &[
    VERSION,
    ASSOCIATED_DATA,
    NONCE,
    PADDING,
    OAEP_HASH,
    MODE,
    field("plaintext", Kind::Base64),
    field("ciphertext", Kind::Sealed),
];
const SIGN: &[Field] = &[
    VERSION,
    INPUT,
    field("signature", Kind::Sealed),
    field("hmac", Kind::Sealed),
    field("hash_algorithm", Kind::HashOrNone),
    field("algorithm", Kind::HashOrNone),
    field("prehashed", Kind::Flag),
    field("signature_algorithm", Kind::Word(&["pss", "pkcs1v15"])),
    field("marshaling_algorithm", Kind::Word(&["asn1", "jws"])),
    field("salt_length", Kind::Salt),
];
const CREATE: &[Field] = &[
    field("type", Kind::KeyType),
    field("key_size", Kind::Number),
    EXPORTABLE,
    BACKUP,
    field("derived", Kind::Flag),
    field("convergent_encryption", Kind::Flag),
];
const CONFIG: &[Field] = &[
    field("min_decryption_version", Kind::Number),
    field("min_encryption_version", Kind::Number),
    field("deletion_allowed", Kind::Flag),
    EXPORTABLE,
    BACKUP,
];
const DATAKEY: &[Field] = &[
    BITS,
    VERSION,
    ASSOCIATED_DATA,
    NONCE,
    PADDING,
    OAEP_HASH,
    MODE,
];
const CERTIFICATE: &[Field] = &[
    field("certificate_chain", Kind::Text),
    field("version", Kind::Number),
];
const CSR: &[Field] = &[field("csr", Kind::Text), field("version", Kind::Number)];
const RANDOM: &[Field] = &[
    field("bytes", Kind::Number),
    field("format", Kind::Word(&["base64", "hex"])),
];
const HASH: &[Field] = &[
    INPUT,
    field("algorithm", Kind::Hash),
    field("format", Kind::Word(&["hex", "base64"])),
];

const MADE: Field = field("key_version", Kind::Count);
const SEALED: &[Field] = &[field("ciphertext", Kind::Sealed), MADE];
/// The plaintext by the variant of that name.
const DATA_KEY: &[Field] = &[
    field("ciphertext", Kind::Sealed),
    MADE,
    field("plaintext", Kind::Base64).optional(),
];
const SIGNED: &[Field] = &[field("signature", Kind::Sealed), MADE];
const MAC: &[Field] = &[field("hmac", Kind::Sealed), MADE];
const VALID: &[Field] = &[field("valid", Kind::Truth)];
const KEY: &[Field] = &[
    field("name", Kind::Text),
    field("type", Kind::Text),
    field("keys", Kind::Versions),
    field("latest_version", Kind::Count),
    field("min_available_version", Kind::Count),
    field("min_decryption_version", Kind::Count),
    field("min_encryption_version", Kind::Count),
    field("deletion_allowed", Kind::Truth),
    field("supports_encryption", Kind::Truth),
    field("supports_decryption", Kind::Truth),
    field("supports_signing", Kind::Truth),
    field("exportable", Kind::Truth),
];

const RANDOM_ROW: &[Operation] = written!(
    "Random bytes of a token",
    Body::One(RANDOM),
    Answer::Data(&[field("random_bytes", Kind::Text)])
);
const HASH_ROW: &[Operation] = written!(
    "The digest of data",
    Body::One(HASH),
    Answer::Data(&[field("sum", Kind::Text)])
);
const SIGN_ROW: &[Operation] = written!("Sign", Body::Batch(SIGN), Answer::Batch(SIGNED));
const VERIFY_ROW: &[Operation] = written!(
    "Verify a signature or an HMAC",
    Body::Batch(SIGN),
    Answer::Batch(VALID)
);
const HMAC_ROW: &[Operation] = written!("Make an HMAC", Body::Batch(SIGN), Answer::Batch(MAC));

/// In the order of the router.
pub static PATHS: &[(&str, &[Operation])] = &[
    (
        "/v1/transit/keys",
        &[operation(
            "get",
            "The names of all keys, as LIST does",
            Answer::Data(&[field("keys", Kind::Names)]),
        )
        .asks(&[
            field("list", Kind::Only("true")),
            field("after", Kind::Text),
            field("limit", Kind::Count),
        ])],
    ),
    (
        "/v1/transit/keys/{name}",
        &[
            operation(
                "get",
                "A key's versions and public halves",
                Answer::Data(KEY),
            ),
            operation("post", "Make a key", Answer::Data(KEY)).takes(Body::One(CREATE)),
            operation("put", "Make a key", Answer::Data(KEY)).takes(Body::One(CREATE)),
            operation(
                "delete",
                "Delete a key that may be deleted",
                Answer::Nothing,
            ),
        ],
    ),
    (
        "/v1/transit/keys/{name}/config",
        written!(
            "Change what may be done with a key",
            Body::One(CONFIG),
            Answer::Data(KEY)
        ),
    ),
    (
        "/v1/transit/keys/{name}/rotate",
        written!("Make a new version", Body::One(&[]), Answer::Data(KEY)),
    ),
    (
        "/v1/transit/keys/{name}/trim",
        written!(
            "Destroy old versions",
            Body::One(&[field("min_available_version", Kind::Number)]),
            Answer::Data(KEY)
        ),
    ),
    (
        "/v1/transit/keys/{name}/csr",
        written!(
            "Have a certification request signed",
            Body::One(CSR),
            Answer::Data(&[
                field("name", Kind::Text),
                field("type", Kind::Text),
                field("csr", Kind::Text),
            ])
        ),
    ),
    (
        "/v1/transit/keys/{name}/set-certificate",
        written!(
            "Keep a certificate with a key",
            Body::One(CERTIFICATE),
            Answer::Nothing
        ),
    ),
    (
        "/v1/transit/encrypt/{name}",
        written!("Encipher", Body::Batch(CRYPT), Answer::Batch(SEALED)),
    ),
    (
        "/v1/transit/decrypt/{name}",
        written!(
            "Decipher",
            Body::Batch(CRYPT),
            Answer::Batch(&[field("plaintext", Kind::Base64)])
        ),
    ),
    (
        "/v1/transit/rewrap/{name}",
        written!(
            "Encipher anew with a newer version",
            Body::Batch(CRYPT),
            Answer::Batch(SEALED)
        ),
    ),
    (
        "/v1/transit/datakey/{variant}/{name}",
        written!(
            "A new key for the client's own use",
            Body::One(DATAKEY),
            Answer::Data(DATA_KEY)
        ),
    ),
    ("/v1/transit/sign/{name}", SIGN_ROW),
    ("/v1/transit/sign/{name}/{variant}", SIGN_ROW),
    ("/v1/transit/verify/{name}", VERIFY_ROW),
    ("/v1/transit/verify/{name}/{variant}", VERIFY_ROW),
    ("/v1/transit/hmac/{name}", HMAC_ROW),
    ("/v1/transit/hmac/{name}/{variant}", HMAC_ROW),
    ("/v1/transit/random", RANDOM_ROW),
    ("/v1/transit/random/{variant}", RANDOM_ROW),
    ("/v1/transit/random/{source}/{variant}", RANDOM_ROW),
    ("/v1/transit/hash", HASH_ROW),
    ("/v1/transit/hash/{variant}", HASH_ROW),
    (
        "/v1/auth/token/lookup-self",
        &[operation(
            "get",
            "Who the client is",
            Answer::Data(&[
                field("display_name", Kind::Text),
                field("renewable", Kind::Truth),
                field("ttl", Kind::Count),
            ]),
        )],
    ),
    (
        "/v1/sys/health",
        &[operation(
            "get",
            "As the dialect's clients ask: always unsealed",
            Answer::Plain(&[
                field("initialized", Kind::Truth),
                field("sealed", Kind::Truth),
                field("standby", Kind::Truth),
                field("version", Kind::Text),
            ]),
        )
        .open()],
    ),
    (
        "/v1/openapi.json",
        &[operation(
            "get",
            "This description",
            Answer::Plain(&[field("openapi", Kind::Text)]),
        )
        .open()],
    ),
    (
        "/healthz",
        &[operation(
            "get",
            "Whether the process answers",
            Answer::Plain(&[field("alive", Kind::Truth)]),
        )
        .open()],
    ),
    (
        "/readyz",
        &[operation(
            "get",
            "Whether a member of the pool serves",
            Answer::Plain(&[field("ready", Kind::Truth)]),
        )
        .open()],
    ),
    (
        "/metrics",
        &[operation("get", "Numbers for Prometheus", Answer::Text)],
    ),
];
