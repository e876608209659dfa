package notify

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"time"
)

// A datagram consists of magic, the time as eight bytes (nanoseconds since 1970, big-endian), the sender's name, a zero
// byte, the receiver's name, and the HMAC-SHA256 of all the preceding bytes. A confirmation has a zero byte and its
// text after the receiver's name.
const (
	magic = "caelum-wake 1\n"
	// maxLength is in bytes. A notification with two names of 253 bytes has 561 bytes, and a confirmation fewer than
	// 641. A munge credential adds about 230.
	maxLength = 1024
)

// window is the maximum accepted difference between the time in a datagram and the receiver's clock.
const window = 30 * time.Second

type datagram struct {
	at       int64
	from, to string
	text     string // empty except in a confirmation
}

// mungePrefix begins a datagram on a cluster without a key file. The munge credential with the sender's session key,
// a newline, and the datagram as sealed with the session key follow.
const mungePrefix = "caelum-wake 2\n"

// split returns the munge credential and the sealed part of a datagram; credential is empty if the datagram has none.
func split(data []byte) (credential string, sealed []byte) {
	rest, ok := bytes.CutPrefix(data, []byte(mungePrefix))
	before, after, found := bytes.Cut(rest, []byte("\n"))
	if !ok || !found {
		return "", data
	}
	return string(before), after
}

func (k Key) seal(d datagram) []byte {
	b := binary.BigEndian.AppendUint64([]byte(magic), uint64(d.at))
	b = append(b, d.from+"\x00"+d.to...)
	if d.text != "" {
		b = append(b, "\x00"+d.text...)
	}
	return append(b, k.mac(b)...)
}

// open returns the contents of a datagram. ok is true if the MAC was computed with this key.
func (k Key) open(data []byte) (d datagram, ok bool) {
	d, ok = read(data)
	at := len(data) - sha256.Size
	return d, ok && hmac.Equal(data[at:], k.mac(data[:at]))
}

// read returns the contents of a datagram without checking the MAC. ok is true if the datagram has the right form.
func read(data []byte) (d datagram, ok bool) {
	const head = len(magic) + 8
	at := len(data) - sha256.Size
	if at < head || len(data) > maxLength || !bytes.HasPrefix(data, []byte(magic)) {
		return d, false
	}
	d.at = int64(binary.BigEndian.Uint64(data[len(magic):]))
	d.from, d.to, ok = strings.Cut(string(data[head:at]), "\x00")
	d.to, d.text, _ = strings.Cut(d.to, "\x00")
	return d, ok
}

func (k Key) mac(data []byte) []byte {
	h := hmac.New(sha256.New, k)
	h.Write(data)
	return h.Sum(nil)
}
