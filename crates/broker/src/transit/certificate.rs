//! csr, set-certificate.

use std::pin::pin;
use std::sync::Arc;

use hsmux_config::Action;
use hsmux_software::{PublicKey, csr};
use serde::Deserialize;
use x509_cert::Certificate;
use x509_cert::der::pem::LineEnding;
use x509_cert::der::{Decode, DecodePem, Encode, EncodePem};
use x509_cert::request::CertReq;
use x509_cert::spki::SubjectPublicKeyInfoOwned;

use super::requested_key::{KeyUse, RequestedKey};
use super::{Data, Reply, loose};
use crate::engine::{RsaScheme, SigningOptions};
use crate::http::ApiCall;
use crate::refusal::Refusal;

#[derive(Deserialize)]
struct CertificateBody {
    csr: Option<String>,
    certificate_chain: Option<String>,
    #[serde(default, deserialize_with = "loose::value")]
    version: Option<u32>,
}

/// `POST keys/:name/csr`: a request with the names of the given one, signed by this key.
pub async fn csr(mut call: ApiCall) -> Result<Reply, Refusal> {
    call.may(Action::Csr)?;
    let body: CertificateBody = call.json().await?;
    let key = RequestedKey::find(&call)?;
    let of = KeyUse::new(&call, &key);
    let chosen = of.to_make(body.version)?;
    if !chosen.shape.signs() {
        return Err(Refusal::bad("keys of this type do not sign requests"));
    }
    let public = chosen.public(&call)?;
    let info = match body.csr.as_deref().filter(|text| !text.trim().is_empty()) {
        Some(template) => retargeted(template, &public)?,
        None => csr::request_info("", &public, &[])?,
    };
    let mechanism = csr::mechanism(&public);
    let recipe = SigningOptions {
        hash: hsmux_token::entry(mechanism.kind).and_then(|e| Some(e.prehash?.hash)),
        prehashed: false,
        scheme: RsaScheme::Pkcs1,
    };
    let target = (chosen.object, chosen.shape);
    let signing = pin!(call.engine().sign(target, &public, recipe, &info));
    let signature = of.run("csr", signing).await?;
    let der = csr::assemble(&info, &mechanism, &signature)?;
    let request = CertReq::from_der(&der).map_err(|e| Refusal::bad(format!("csr: {e}")))?;
    let pem = request.to_pem(LineEnding::LF);
    let pem = pem.map_err(|e| Refusal::bad(format!("csr: {e}")))?;
    Ok(Reply::ok([
        ("name", call.key().into()),
        ("type", chosen.shape.word().into()),
        ("csr", pem.into()),
    ]))
}

/// `POST keys/:name/set-certificate`
pub async fn set_certificate(mut call: ApiCall) -> Result<Reply, Refusal> {
    call.may(Action::SetCertificate)?;
    let body: CertificateBody = call.json().await?;
    let text = body.certificate_chain.unwrap_or_default();
    let chain = Certificate::load_pem_chain(text.as_bytes()).map_err(|e| {
        Refusal::bad(format!(
            "certificate_chain: {e}; it is PEM, the key's own first"
        ))
    })?;
    let own = chain
        .first()
        .ok_or_else(|| Refusal::bad("certificate_chain: there is no certificate in it"))?;
    let key = call.engine().keyring().find(call.key())?;
    let version = key.to_make(body.version)?;
    if !key.kind.shape().signs() {
        return Err(Refusal::bad("keys of this type have no certificates"));
    }
    let public = call.engine().public_half(version)?;
    let own = own
        .to_der()
        .map_err(|e| Refusal::bad(format!("certificate_chain: {e}")))?;
    if PublicKey::from_certificate(&own)?.spki() != public.spki() {
        return Err(Refusal::bad(
            "the first certificate of certificate_chain is not of this version of the key",
        ));
    }
    let (engine, name, number) = (Arc::clone(call.engine()), key.name.clone(), version.number);
    let work = async move {
        engine
            .set_certificates(name.as_str(), Some(number), text)
            .await
    };
    let what = Data::from([("version", number.into())]);
    call.act("broker-key-set-certificate", what, work).await?;
    Ok(Reply::Nothing)
}

/// The signed part of a request, for another key: names and extensions stay.
fn retargeted(template: &str, public: &PublicKey) -> Result<Vec<u8>, Refusal> {
    let wrong = |e: x509_cert::der::Error| Refusal::bad(format!("csr: {e}"));
    let mut info = CertReq::from_pem(template).map_err(wrong)?.info;
    info.public_key = SubjectPublicKeyInfoOwned::from_der(public.spki()).map_err(wrong)?;
    info.to_der().map_err(wrong)
}
