//! TLS of a site: one context for each of its certificates, selected by the ClientHello.

use std::sync::{Arc, LazyLock};

use crate::ticket_keys::TicketKeys;
use boring::error::ErrorStack;
use boring::ex_data::Index;
use boring::ssl::{
    AlpnError, ClientHello, ExtensionType, NameType, SelectCertError, SniError, Ssl, SslAlert,
    SslContext, SslContextBuilder, SslMethod, SslOptions, SslRef, SslSessionCacheMode,
    SslVerifyMode, SslVersion, select_next_proto,
};
use boring::x509::{X509StoreContextRef, X509VerifyError};
use hsmux_config::{Clients, GatewaySection, Site, SiteBackends};
use hsmux_software::revocation::{Revocation, RevocationError};
use hsmux_token::Result;

use crate::algorithm::Ability;
use crate::certificate::{CertificateKey, Credential, wrong};
use crate::client_roots::ClientRoots;
use crate::revocation;
use crate::signer::{PROGRESS, Signer};
use crate::sites::{ServedSite, Sites};

/// Cipher suites of TLS 1.2 with forward secrecy and authenticated encryption (RFC 9325, section 4.2). All of TLS 1.3
/// are such.
pub const SUITES: &str = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:\
    ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:\
    ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305";

/// Codes of those that need an EC key.
const ECDSA_SUITES: [[u8; 2]; 3] = [[0xc0, 0x2b], [0xc0, 0x2c], [0xcc, 0xa9]];

/// Codes of a certificate's curve.
struct CertificateCurve {
    /// As a group.
    group: [u8; 2],
    /// The signature algorithm of TLS 1.3.
    algorithm: [u8; 2],
}

const P256: CertificateCurve = CertificateCurve {
    group: [0x00, 0x17],
    algorithm: [0x04, 0x03],
};

const P384: CertificateCurve = CertificateCurve {
    group: [0x00, 0x18],
    algorithm: [0x05, 0x03],
};

/// A certificate with its context of TLS.
pub struct CertificateContext {
    context: SslContext,
    ability: Ability,
    /// The curve of its key, if that is EC.
    curve: Option<CertificateCurve>,
    /// Signs for it, if its key is in the pool.
    signer: Option<Signer>,
    ocsp: Option<Vec<u8>>,
}

/// Index of a handshake's site in its `Ssl`.
pub static SITE: LazyLock<Index<Ssl, Arc<ServedSite>>> =
    LazyLock::new(|| Ssl::new_ex_index().expect("memory for an index"));

/// How clients resume sessions, which needs no signature.
#[derive(Clone, Copy)]
pub enum Resumption<'a> {
    /// They cannot.
    None,
    /// By tickets of this process alone. BoringSSL makes and rotates their keys.
    Own,
    /// By tickets of all hosts of a cluster.
    Shared(&'a TicketKeys),
}

impl<'a> Resumption<'a> {
    /// The configured one. `keys` are those that hosts share.
    pub fn of(section: &GatewaySection, keys: Option<&'a TicketKeys>) -> Self {
        match keys {
            _ if !section.tickets => Self::None,
            None => Self::Own,
            Some(keys) => Self::Shared(keys),
        }
    }
}

/// The context that every handshake begins with. It has the keys of this process's own tickets, so it stays when
/// certificates change.
pub fn front(
    sites: impl Fn() -> Arc<Sites> + Send + Sync + 'static,
    tickets: Resumption<'_>,
) -> Result<SslContext, ErrorStack> {
    let mut context = builder(tickets)?;
    context.set_select_certificate_callback(move |mut hello: ClientHello<'_>| {
        let name = hello.servername(NameType::HOST_NAME).map(str::to_owned);
        // Without a site the next callback refuses the handshake, with the proper alert.
        let served = sites().find(name.as_deref());
        if let Some(served) = served.filter(|served| served.is_certified()) {
            let is_selected = served
                .select_certificate(&mut hello)
                .map_err(|_| SelectCertError::ERROR)?;
            if is_selected {
                hello.ssl_mut().replace_ex_data(*SITE, served);
            } else if let Some(progress) = hello.ssl().ex_data(*PROGRESS) {
                progress.refuse();
            }
        }
        Ok(())
    });
    context.set_servername_callback(|ssl: &mut SslRef, alert: &mut SslAlert| {
        if ssl.ex_data(*SITE).is_some() {
            return Ok(());
        }
        let progress = ssl.ex_data(*PROGRESS);
        *alert = if progress.is_some_and(|progress| progress.is_refused()) {
            SslAlert::INTERNAL_ERROR
        } else {
            SslAlert::UNRECOGNIZED_NAME
        };
        Err(SniError::ALERT_FATAL)
    });
    Ok(context.build())
}

/// Settings of every context.
pub fn builder(tickets: Resumption<'_>) -> Result<SslContextBuilder, ErrorStack> {
    let mut context = SslContext::builder(SslMethod::tls())?;
    context.set_min_proto_version(Some(SslVersion::TLS1_2))?;
    context.set_strict_cipher_list(SUITES)?;
    // Sessions are in tickets only, and not cached here.
    context.set_session_cache_mode(SslSessionCacheMode::OFF);
    context.set_options(SslOptions::CIPHER_SERVER_PREFERENCE);
    match tickets {
        Resumption::None => drop(context.set_options(SslOptions::NO_TICKET)),
        Resumption::Own => {}
        Resumption::Shared(keys) => crate::ticket_keys::install(&mut context, keys),
    }
    Ok(context)
}

impl CertificateContext {
    /// A certificate of a site. `roots` are those of client certificates, and `signer` makes a signer for a key of the
    /// pool.
    pub fn new(
        site: &Site,
        credential: &Credential,
        ability: Ability,
        tickets: Resumption<'_>,
        roots: Option<&ClientRoots>,
        signer: impl FnOnce(hsmux_token::ObjectId) -> Signer,
    ) -> Result<Self> {
        let named = |e: ErrorStack| wrong(&credential.name, e);
        let mut context = builder(tickets).map_err(named)?;
        set_up_certificate(&mut context, site, credential).map_err(named)?;
        context.set_sigalgs_list(&ability.list).map_err(named)?;
        let signer = match &credential.key {
            CertificateKey::File(key) => {
                context.set_private_key(key).map_err(named)?;
                None
            }
            CertificateKey::Pool(key) => Some(signer(*key)),
        };
        if let Some(signer) = signer.clone() {
            context.set_async_private_key_method(signer);
        }
        if let Some(roots) = roots {
            roots.apply(&mut context).map_err(named)?;
        }
        let curve = ability.ec.then(|| match credential.public.bits() {
            256 => P256,
            _ => P384,
        });
        Ok(Self {
            context: context.build(),
            ability,
            curve,
            signer,
            ocsp: credential.ocsp.clone(),
        })
    }

    /// Whether its key is EC, which is preferred to RSA.
    pub fn is_ec(&self) -> bool {
        self.ability.ec
    }

    /// Whether the client can verify it.
    pub fn suits(&self, hello: &ClientHello<'_>) -> bool {
        let Some(curve) = &self.curve else {
            return true;
        };
        let tls13 = has(hello, ExtensionType::SUPPORTED_VERSIONS, 1, [0x03, 0x04]);
        let signs = |curve: &CertificateCurve| {
            let algorithms = ExtensionType::SIGNATURE_ALGORITHMS;
            has(hello, algorithms, 2, curve.algorithm)
        };
        // In TLS 1.2 the hash does not matter, and the curve has to be among the groups (RFC 8422, section 5.1).
        let verifies = if tls13 {
            signs(curve)
        } else {
            let knows_curve = has(hello, ExtensionType::SUPPORTED_GROUPS, 2, curve.group);
            knows_curve && [P256, P384].iter().any(signs)
        };
        let suites = || hello.ciphers().chunks_exact(2);
        verifies && (tls13 || suites().any(|suite| ECDSA_SUITES.iter().any(|one| one == suite)))
    }

    /// Whether the client would wait too long for a signature. Such a client is refused before any work is done.
    /// Resumed sessions need no signature.
    pub fn is_late(&self, hello: &ClientHello<'_>) -> bool {
        let progress = hello.ssl().ex_data(*PROGRESS);
        let (Some(signer), Some(progress)) = (&self.signer, progress) else {
            return false;
        };
        signer.is_late(progress) && !resumes(hello)
    }

    /// Applies this certificate to a handshake.
    pub fn apply(
        &self,
        ssl: &mut SslRef,
        clients: Option<&Clients>,
        lists: Option<&Arc<Revocation>>,
    ) -> Result<(), ErrorStack> {
        ssl.set_ssl_context(&self.context)?;
        if !self.ability.tls13 {
            ssl.set_max_proto_version(Some(SslVersion::TLS1_2))?;
        }
        if let Some(response) = &self.ocsp {
            ssl.set_ocsp_status(response)?;
        }
        if let Some(clients) = clients {
            let required = SslVerifyMode::FAIL_IF_NO_PEER_CERT;
            let or = SslVerifyMode::empty();
            let mode = SslVerifyMode::PEER | if clients.required { required } else { or };
            match lists.cloned() {
                None => ssl.set_verify(mode),
                Some(lists) => ssl.set_verify_callback(mode, move |verified, context| {
                    verified && (context.error_depth() > 0 || is_believed(&lists, context))
                }),
            }
            // Resumption would skip the check of the client's certificate, which may have expired or been revoked.
            ssl.set_options(SslOptions::NO_TICKET);
        }
        Ok(())
    }
}

/// Whether no list speaks against a verified chain.
fn is_believed(lists: &Revocation, context: &mut X509StoreContextRef) -> bool {
    let chain = context.chain().into_iter().flatten();
    let Err(why) = revocation::check(lists, chain) else {
        return true;
    };
    tracing::info!("a client's certificate is refused: {why}");
    context.set_error(Err(match why {
        RevocationError::Revoked { .. } => X509VerifyError::CERT_REVOKED,
        RevocationError::Expired(_) => X509VerifyError::CRL_HAS_EXPIRED,
        _ => X509VerifyError::UNABLE_TO_GET_CRL,
    }));
    false
}

/// Whether a hello offers a session. It may not be valid.
fn resumes(hello: &ClientHello<'_>) -> bool {
    let ticket = hello.get_extension(ExtensionType::SESSION_TICKET);
    let session = hello.get_extension(ExtensionType::PRE_SHARED_KEY);
    session.is_some() || ticket.is_some_and(|ticket| !ticket.is_empty())
}

/// Whether an extension's list of two-byte values has this one. `skip` is the size of the list's length.
fn has(hello: &ClientHello<'_>, extension: ExtensionType, skip: usize, value: [u8; 2]) -> bool {
    let list = hello
        .get_extension(extension)
        .and_then(|all| all.get(skip..));
    list.is_some_and(|list| list.chunks_exact(2).any(|one| one == value))
}

fn set_up_certificate(
    context: &mut SslContextBuilder,
    site: &Site,
    credential: &Credential,
) -> Result<(), ErrorStack> {
    context.set_certificate(&credential.chain[0])?;
    for issuer in &credential.chain[1..] {
        context.add_extra_chain_cert(issuer.clone())?;
    }
    // A session of one site is not resumed on another.
    let names = site.names.join(" ");
    context.set_session_id_context(&boring::sha::sha256(names.as_bytes()))?;
    let protocols: &'static [u8] = match site.backends {
        // Its protocol is up to client and backend.
        SiteBackends::Tcp(..) => return Ok(()),
        _ if site.http2 => b"\x02h2\x08http/1.1",
        _ => b"\x08http/1.1",
    };
    context.set_alpn_select_callback(move |_, offered| {
        select_next_proto(protocols, offered).ok_or(AlpnError::ALERT_FATAL)
    });
    Ok(())
}
