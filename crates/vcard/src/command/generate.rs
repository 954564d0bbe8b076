use hsmux_smartcard::{CommandApdu, ResponseApdu, StatusWord, tlv};
use num_bigint::BigUint;

use super::done;
use super::files::REQUESTS;
use crate::chip::{Chip, Outcome};
use crate::crypto::ec::EcKey;
use crate::crypto::rsa::RsaKey;
use crate::cvc::{self, ECDSA_SHA256, KeyTemplate, NO_AUTHORITY, Parameters};
use crate::key::CardKey;
use crate::state::KeyRecord;
use crate::timing::Operation;

/// Derivation of an EC key from another.
const EC_DERIVE: u8 = 0x98;

/// GENERATE ASYMMETRIC KEY PAIR (ISO/IEC 7816-8, section 5.1): returns a signed request for the public key,
/// and writes it to the file of the key's certificate for hosts that read it there.
pub fn key_pair(chip: &mut Chip, command: &CommandApdu) -> Outcome {
    let holder = cvc::holder(&chip.memory.state().serial);
    let template =
        KeyTemplate::parse(&command.data, holder.as_bytes()).ok_or(StatusWord::WRONG_DATA)?;
    new_id(chip, command.p1)?;
    let key = match &template.parameters {
        Parameters::Rsa(bits, e) => RsaKey::generate(*bits, e).map(CardKey::Rsa),
        Parameters::Ec(curve) => Some(CardKey::Ec(EcKey::generate(curve))),
    };
    let key = key.ok_or(StatusWord::WRONG_DATA)?;
    let record = conditions(KeyRecord::new(key), &command.data)?;
    let request = store(chip, command.p1, record, &template, Operation::Generate)?;
    Ok(ResponseApdu::ok(request))
}

/// GENERATE SYMMETRIC KEY: AES; P2 is the size.
pub fn secret_key(chip: &mut Chip, command: &CommandApdu) -> Outcome {
    let len = match command.p2 {
        0xB0 => 16,
        0xB1 => 24,
        0xB2 => 32,
        _ => return Err(StatusWord::WRONG_PARAMETERS.into()),
    };
    new_id(chip, command.p1)?;
    let mut key = vec![0; len];
    crate::crypto::fill(&mut key);
    let record = conditions(KeyRecord::new(CardKey::Aes(key)), &command.data)?;
    chip.work = Some((Operation::Generate, record.key.kind()));
    chip.memory.change().keys.insert(command.p1, record);
    chip.fits()?;
    Ok(done())
}

/// DERIVE EC KEY: the new key is the private scalar plus a number from the host, modulo the order.
pub fn derive(chip: &mut Chip, command: &CommandApdu) -> Outcome {
    let Some((&EC_DERIVE, addend)) = command.data.split_first() else {
        return Err(StatusWord::WRONG_DATA.into());
    };
    new_id(chip, command.p2)?;
    let key = chip.use_key(command.p1, EC_DERIVE, Operation::Derive)?;
    let CardKey::Ec(parent) = &*key else {
        return Err(StatusWord::CONDITIONS_NOT_SATISFIED.into());
    };
    let curve = parent.curve;
    let d = (&parent.d + BigUint::from_bytes_be(addend)) % &curve.n;
    let child = EcKey::new(curve, d).ok_or(StatusWord::WRONG_DATA)?;
    let holder = cvc::holder(&chip.memory.state().serial);
    let template = KeyTemplate {
        authority: NO_AUTHORITY.as_bytes(),
        holder: holder.as_bytes(),
        oid: ECDSA_SHA256,
        parameters: Parameters::Ec(curve),
    };
    let record = KeyRecord::new(CardKey::Ec(child));
    store(chip, command.p2, record, &template, Operation::Derive)?;
    Ok(done())
}

/// Key ids start at 1 and are unique.
fn new_id(chip: &Chip, id: u8) -> Result<(), StatusWord> {
    if id == 0 {
        return Err(StatusWord::WRONG_PARAMETERS);
    }
    chip.free_key_id(id)
}

/// Reads the conditions of use: 90 is a counter, 91 algorithms. 92, a key domain, must be 0.
fn conditions(record: KeyRecord, data: &[u8]) -> Result<KeyRecord, StatusWord> {
    let field = |tag| tlv::find(data, tag).ok().map(|field| field.value);
    let uses = match field(0x90).map(<[u8; 4]>::try_from) {
        None => None,
        Some(Ok(uses)) => Some(u32::from_be_bytes(uses)),
        Some(Err(_)) => return Err(StatusWord::WRONG_DATA),
    };
    if field(0x92).is_some_and(|domain| domain != [0]) {
        return Err(StatusWord::REFERENCE_NOT_FOUND);
    }
    Ok(KeyRecord {
        algorithms: field(0x91).unwrap_or_default().into(),
        uses,
        ..record
    })
}

/// Stores key and request together; returns the request.
fn store(
    chip: &mut Chip,
    id: u8,
    record: KeyRecord,
    template: &KeyTemplate,
    operation: Operation,
) -> Result<Vec<u8>, StatusWord> {
    let device = chip.device_key()?;
    let CardKey::Ec(device) = &*device else {
        return Err(StatusWord::EXECUTION_ERROR);
    };
    let request = template.request(&record.key, device, &chip.memory.state().serial);
    let request = request.ok_or(StatusWord::WRONG_DATA)?;
    chip.work = Some((operation, record.key.kind()));
    let state = chip.memory.change();
    state.keys.insert(id, record);
    state
        .files
        .insert(REQUESTS << 8 | u16::from(id), request.as_slice().into());
    chip.fits()?;
    Ok(request)
}
