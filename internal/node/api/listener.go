package api

import (
	"net"
	"sync"
	"syscall"
)

// maxPerUser is the maximum number of open connections per user, and maxAllUsers is the maximum for all users together.
// A user's processes in user namespaces count as that user's, whatever ids they have there. Root's connections are
// exempt, so users cannot block the prolog or the epilog. Each connection uses one of the agent's file descriptors for
// at most ten seconds.
const (
	maxPerUser  = 64
	maxAllUsers = 512
)

// limits holds the maximum number of open connections on one socket, for each user and for all users together.
type limits struct{ each, all int }

// listener accepts connections and immediately closes those that exceed the limits.
type listener struct {
	*net.UnixListener
	users limits
	owner Owner
	mu    sync.Mutex
	held  map[uint32]int
	all   int
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		p := peerOf(c)
		p.counted = l.countedAs(p)
		if l.admit(p.counted) {
			return &conn{UnixConn: c, peer: p, leave: sync.OnceFunc(func() { l.leave(p.counted) })}, nil
		}
		c.Close()
	}
}

// Owner returns the user to whom a process with the given real user id belongs: the owner of its user namespace, or
// uid.
type Owner func(pid int, uid uint32) uint32

// countedAs returns the user whose limits apply to the peer's connection and calls.
func (l *listener) countedAs(p peer) uint32 {
	if l.owner == nil || p.uid == 0 || p.pid == 0 {
		return p.uid
	}
	return l.owner(p.pid, p.uid)
}

func (l *listener) admit(uid uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if uid == 0 {
		return true
	}
	if l.held[uid] >= l.users.each || l.all >= l.users.all {
		return false
	}
	l.held[uid]++
	l.all++
	return true
}

func (l *listener) leave(uid uint32) {
	if uid == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.held[uid]--; l.held[uid] == 0 {
		delete(l.held, uid)
	}
}

// conn is a connection and its peer. Close calls leave.
type conn struct {
	*net.UnixConn
	peer
	leave func()
}

func (c *conn) Close() error {
	defer c.leave()
	return c.UnixConn.Close()
}

// nobody is the uid assumed for a peer whose uid the kernel did not report. It differs from root's uid.
const nobody = ^uint32(0)

// peer is the process that connected.
type peer struct {
	uid, counted uint32 // see countedAs
	pid          int    // 0 if unknown
}

var unknownPeer = peer{uid: nobody, counted: nobody}

// peerOf returns the process that connected. Its uid is nobody if the kernel did not report one. The kernel translates
// uids: for a process that is root in a user namespace, it reports the uid of the user who created the namespace.
func peerOf(c *net.UnixConn) peer {
	p := unknownPeer
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			if cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
				p = peer{cred.Uid, cred.Uid, int(cred.Pid)}
			}
		})
	}
	return p
}
