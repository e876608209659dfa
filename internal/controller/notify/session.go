package notify

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"time"

	"golang.org/x/time/rate"
)

// session is a random key with which a sender seals its datagrams. Each datagram contains the munge credential that
// carries the key, so that receivers need no earlier datagram.
type session struct {
	credential string
	key        Key
	at         time.Time // the time of the encoding or decoding
}

const (
	credentialTTL = time.Hour // munge's maximum
	renewal       = credentialTTL / 2
	decodeEvery   = 100 * time.Millisecond // time per decoding after a burst, for datagrams from the notification port
	decodeBurst   = 100                    // number of decodings without delay
	addressEvery  = 10 * time.Second       // the same for the notification port of each address
	addressBurst  = 3
	maxAddresses  = 1 << 16     // maximum number of addresses whose decodings are counted
	strangerEvery = time.Second // the same for datagrams from other ports
	strangerBurst = 10
	maxQuoted     = 200 // maximum length of a quoted error, in bytes
)

// uncompressed matches the credentials whose contents are not compressed. The fourth byte before the base64 encoding is
// the type of compression; 0 is none. Decompression can take ten times as long as the rest of a decoding.
var uncompressed = regexp.MustCompile(`^MUNGE:[A-Za-z0-9+/]{4}A[A-P][A-Za-z0-9+/]*=*:$`)

// renew creates a new session if this one is too old. If munge does not respond, the session remains in use until its
// credential expires.
func (s *session) renew(auth Auth) error {
	if s.key != nil && time.Since(s.at) < renewal {
		return nil
	}
	key := make(Key, minKey)
	rand.Read(key)
	at := time.Now()
	credential, err := auth.Munge.Encode(append([]byte(mungePrefix), key...), auth.Receiver)
	if err == nil {
		*s = session{credential, key, at}
	} else if s.key != nil && time.Since(s.at) < credentialTTL {
		return nil
	}
	return err
}

// acceptMunge opens a datagram with a munge credential. Because users can send such datagrams, it decodes a credential
// that the sender has not used before only after all other checks. If it accepts a datagram, it keeps the session.
func (a *acceptor) acceptMunge(
	ctx context.Context, data []byte, from netip.AddrPort, now time.Time,
) (d datagram, reason string) {
	credential, sealed := split(data)
	d, ok := read(sealed)
	if !ok || credential == "" {
		return d, "the datagram has no munge credential: it is not from Caelum, or the sender uses a key file"
	}
	if len(data) > maxLength || !uncompressed.MatchString(credential) {
		return d, "the munge credential is malformed or compressed"
	}
	// A second lookup is omitted, because a datagram that only claims to be from the sender could trigger it.
	if reason := a.check(ctx, d, from.Addr().Unmap(), now, lookupAge); reason != "" {
		return d, reason
	}
	s := a.sessions[d.from]
	if s.credential != credential || now.Sub(s.at) >= credentialTTL {
		if s, reason = a.decode(credential, from, now); reason != "" {
			return d, reason
		}
	}
	if _, ok := s.key.open(sealed); !ok {
		return d, wrongMAC
	}
	a.sessions[d.from] = s
	return d, ""
}

// decode returns the session of a munge credential. The limit for datagrams from the sender's notification port is
// separate: while the sender listens there, users' processes cannot send from this port, so they cannot use up its
// decodings. A sender that could not open the port sends from another one.
func (a *acceptor) decode(credential string, from netip.AddrPort, now time.Time) (s session, reason string) {
	var allowed bool
	if int(from.Port()) == a.Port {
		allowed = a.ofAddress(from.Addr().Unmap()).AllowN(now, 1) && a.decodings.AllowN(now, 1)
	} else {
		allowed = a.strangers.AllowN(now, 1)
	}
	if !allowed {
		return s, "too many datagrams have new munge credentials"
	}
	payload, uid, err := a.Auth.Munge.Decode(credential)
	key, ours := bytes.CutPrefix(payload, []byte(mungePrefix))
	switch {
	case err != nil:
		return s, err.Error()
	case !slices.Contains(a.Auth.Senders, uid):
		return s, fmt.Sprintf("the munge credential belongs to user %d, who may not send notifications", uid)
	case !ours || len(key) != minKey:
		return s, "the munge credential was not created for a notification"
	}
	return session{credential, key, now}, ""
}

// ofAddress returns the limit on decodings for the notification port of one address, so that a host on which a user
// could open the port does not use up the decodings of all hosts. The address must be one of a known sender.
func (a *acceptor) ofAddress(address netip.Addr) *rate.Limiter {
	limit, ok := a.each[address]
	if !ok {
		if len(a.each) >= maxAddresses { // the addresses of hosts have changed often
			clear(a.each)
		}
		limit = rate.NewLimiter(rate.Every(addressEvery), addressBurst)
		a.each[address] = limit
	}
	return limit
}
