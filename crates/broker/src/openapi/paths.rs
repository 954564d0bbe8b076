//! Every path with its methods: a row each.

use super::fields::{ApiBody, Field, FieldKind, field};

/// A method of a path.
pub struct ApiOperation {
    pub method: &'static str,
    pub summary: &'static str,
    /// Parameters of the query.
    pub query: &'static [Field],
    /// The request's body.
    pub body: Option<ApiBody>,
    pub answer: ApiAnswer,
    /// True if it needs no token.
    pub open: bool,
}

/// The answer of a success.
#[derive(Clone, Copy)]
pub enum ApiAnswer {
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

const fn operation(method: &'static str, summary: &'static str, answer: ApiAnswer) -> ApiOperation {
    ApiOperation {
        method,
        summary,
        query: &[],
        body: None,
        answer,
        open: false,
    }
}

impl ApiOperation {
    const fn takes(mut self, body: ApiBody) -> Self {
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

const VERSION: Field = field("key_version", FieldKind::Number);
const BITS: Field = field("bits", FieldKind::Number);
const ASSOCIATED_DATA: Field = field("associated_data", FieldKind::Base64);
const NONCE: Field = field("nonce", FieldKind::Base64);
const PADDING: Field = field("padding_scheme", FieldKind::Word(&["oaep", "pkcs1v15"]));
const OAEP_HASH: Field = field("oaep_hash", FieldKind::Hash);
const MODE: Field = field("mode", FieldKind::Word(&["gcm", "cbc"]));
const EXPORTABLE: Field = field("exportable", FieldKind::Flag);
const BACKUP: Field = field("allow_plaintext_backup", FieldKind::Flag);
const INPUT: Field = field("input", FieldKind::Base64);

const CRYPT: &[Field] = &[
    VERSION,
    ASSOCIATED_DATA,
    NONCE,
    PADDING,
    OAEP_HASH,
    MODE,
    field("plaintext", FieldKind::Base64),
    field("ciphertext", FieldKind::Sealed),
];
const SIGN: &[Field] = &[
    VERSION,
    INPUT,
    field("signature", FieldKind::Sealed),
    field("hmac", FieldKind::Sealed),
    field("hash_algorithm", FieldKind::HashOrNone),
    field("algorithm", FieldKind::HashOrNone),
    field("prehashed", FieldKind::Flag),
    field("signature_algorithm", FieldKind::Word(&["pss", "pkcs1v15"])),
    field("marshaling_algorithm", FieldKind::Word(&["asn1", "jws"])),
    field("salt_length", FieldKind::Salt),
];
const CREATE: &[Field] = &[
    field("type", FieldKind::KeyType),
    field("key_size", FieldKind::Number),
    EXPORTABLE,
    BACKUP,
    field("derived", FieldKind::Flag),
    field("convergent_encryption", FieldKind::Flag),
];
const CONFIG: &[Field] = &[
    field("min_decryption_version", FieldKind::Number),
    field("min_encryption_version", FieldKind::Number),
    field("deletion_allowed", FieldKind::Flag),
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
    field("certificate_chain", FieldKind::Text),
    field("version", FieldKind::Number),
];
const CSR: &[Field] = &[
    field("csr", FieldKind::Text),
    field("version", FieldKind::Number),
];
const RANDOM: &[Field] = &[
    field("bytes", FieldKind::Number),
    field("format", FieldKind::Word(&["base64", "hex"])),
];
const HASH: &[Field] = &[
    INPUT,
    field("algorithm", FieldKind::Hash),
    field("format", FieldKind::Word(&["hex", "base64"])),
];

const MADE: Field = field("key_version", FieldKind::Count);
const SEALED: &[Field] = &[field("ciphertext", FieldKind::Sealed), MADE];
/// The name of the variant decides about the plaintext.
const DATA_KEY: &[Field] = &[
    field("ciphertext", FieldKind::Sealed),
    MADE,
    field("plaintext", FieldKind::Base64).optional(),
];
const SIGNED: &[Field] = &[field("signature", FieldKind::Sealed), MADE];
const MAC: &[Field] = &[field("hmac", FieldKind::Sealed), MADE];
const VALID: &[Field] = &[field("valid", FieldKind::Truth)];
const KEY: &[Field] = &[
    field("name", FieldKind::Text),
    field("type", FieldKind::Text),
    field("keys", FieldKind::Versions),
    field("latest_version", FieldKind::Count),
    field("min_available_version", FieldKind::Count),
    field("min_decryption_version", FieldKind::Count),
    field("min_encryption_version", FieldKind::Count),
    field("deletion_allowed", FieldKind::Truth),
    field("supports_encryption", FieldKind::Truth),
    field("supports_decryption", FieldKind::Truth),
    field("supports_signing", FieldKind::Truth),
    field("exportable", FieldKind::Truth),
];

const RANDOM_ROW: &[ApiOperation] = written!(
    "Random bytes of a token",
    ApiBody::One(RANDOM),
    ApiAnswer::Data(&[field("random_bytes", FieldKind::Text)])
);
const HASH_ROW: &[ApiOperation] = written!(
    "The digest of data",
    ApiBody::One(HASH),
    ApiAnswer::Data(&[field("sum", FieldKind::Text)])
);
const SIGN_ROW: &[ApiOperation] = written!("Sign", ApiBody::Batch(SIGN), ApiAnswer::Batch(SIGNED));
const VERIFY_ROW: &[ApiOperation] = written!(
    "Verify a signature or an HMAC",
    ApiBody::Batch(SIGN),
    ApiAnswer::Batch(VALID)
);
const HMAC_ROW: &[ApiOperation] =
    written!("Make an HMAC", ApiBody::Batch(SIGN), ApiAnswer::Batch(MAC));

/// In the order of the router.
pub static PATHS: &[(&str, &[ApiOperation])] = &[
    (
        "/v1/transit/keys",
        &[operation(
            "get",
            "The names of all keys, as LIST does",
            ApiAnswer::Data(&[field("keys", FieldKind::Names)]),
        )
        .asks(&[
            field("list", FieldKind::Only("true")),
            field("after", FieldKind::Text),
            field("limit", FieldKind::Count),
        ])],
    ),
    (
        "/v1/transit/keys/{name}",
        &[
            operation(
                "get",
                "A key's versions and public halves",
                ApiAnswer::Data(KEY),
            ),
            operation("post", "Make a key", ApiAnswer::Data(KEY)).takes(ApiBody::One(CREATE)),
            operation("put", "Make a key", ApiAnswer::Data(KEY)).takes(ApiBody::One(CREATE)),
            operation(
                "delete",
                "Delete a key that may be deleted",
                ApiAnswer::Nothing,
            ),
        ],
    ),
    (
        "/v1/transit/keys/{name}/config",
        written!(
            "Change what may be done with a key",
            ApiBody::One(CONFIG),
            ApiAnswer::Data(KEY)
        ),
    ),
    (
        "/v1/transit/keys/{name}/rotate",
        written!(
            "Make a new version",
            ApiBody::One(&[]),
            ApiAnswer::Data(KEY)
        ),
    ),
    (
        "/v1/transit/keys/{name}/trim",
        written!(
            "Destroy old versions",
            ApiBody::One(&[field("min_available_version", FieldKind::Number)]),
            ApiAnswer::Data(KEY)
        ),
    ),
    (
        "/v1/transit/keys/{name}/csr",
        written!(
            "Have a certification request signed",
            ApiBody::One(CSR),
            ApiAnswer::Data(&[
                field("name", FieldKind::Text),
                field("type", FieldKind::Text),
                field("csr", FieldKind::Text),
            ])
        ),
    ),
    (
        "/v1/transit/keys/{name}/set-certificate",
        written!(
            "Keep a certificate with a key",
            ApiBody::One(CERTIFICATE),
            ApiAnswer::Nothing
        ),
    ),
    (
        "/v1/transit/encrypt/{name}",
        written!("Encipher", ApiBody::Batch(CRYPT), ApiAnswer::Batch(SEALED)),
    ),
    (
        "/v1/transit/decrypt/{name}",
        written!(
            "Decipher",
            ApiBody::Batch(CRYPT),
            ApiAnswer::Batch(&[field("plaintext", FieldKind::Base64)])
        ),
    ),
    (
        "/v1/transit/rewrap/{name}",
        written!(
            "Encipher anew with a newer version",
            ApiBody::Batch(CRYPT),
            ApiAnswer::Batch(SEALED)
        ),
    ),
    (
        "/v1/transit/datakey/{variant}/{name}",
        written!(
            "A new key for the client's own use",
            ApiBody::One(DATAKEY),
            ApiAnswer::Data(DATA_KEY)
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
            ApiAnswer::Data(&[
                field("display_name", FieldKind::Text),
                field("renewable", FieldKind::Truth),
                field("ttl", FieldKind::Count),
            ]),
        )],
    ),
    (
        "/v1/sys/health",
        &[operation(
            "get",
            "As the dialect's clients ask: always unsealed",
            ApiAnswer::Plain(&[
                field("initialized", FieldKind::Truth),
                field("sealed", FieldKind::Truth),
                field("standby", FieldKind::Truth),
                field("version", FieldKind::Text),
            ]),
        )
        .open()],
    ),
    (
        "/v1/openapi.json",
        &[operation(
            "get",
            "This description",
            ApiAnswer::Plain(&[field("openapi", FieldKind::Text)]),
        )
        .open()],
    ),
    (
        "/healthz",
        &[operation(
            "get",
            "Whether the process answers",
            ApiAnswer::Plain(&[field("alive", FieldKind::Truth)]),
        )
        .open()],
    ),
    (
        "/readyz",
        &[operation(
            "get",
            "Whether a member of the pool serves",
            ApiAnswer::Plain(&[field("ready", FieldKind::Truth)]),
        )
        .open()],
    ),
    (
        "/metrics",
        &[operation("get", "Numbers for Prometheus", ApiAnswer::Text)],
    ),
];
