package mesh

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Credentials names the files that a caller needs for a mesh with TLS or identities.
type Credentials struct {
	// Authority is the PEM file of the authority that signed the servers' certificates; it turns
	// TLS on.
	Authority string
	// Certificate and Key are the caller's own, for servers that ask for one.
	Certificate, Key string
	// ServerName is the name in the server's certificate, where it is not the address's host.
	ServerName string
	// TokenFile holds the caller's bearer token. It travels over TLS, or to this machine.
	TokenFile string
}

// DialOptions returns the options of Dial for these credentials, or an error that names the file.
func (c Credentials) DialOptions(target string) ([]grpc.DialOption, error) {
	var options []grpc.DialOption
	secured := c.Authority != ""
	if !secured && (c.Certificate != "" || c.Key != "" || c.ServerName != "") {
		return nil, errors.New("a certificate, key or server name needs the authority, too")
	}
	if secured {
		config, err := c.config()
		if err != nil {
			return nil, err
		}
		options = append(options, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	}
	if c.TokenFile != "" {
		token, err := os.ReadFile(c.TokenFile)
		if err != nil {
			return nil, err
		}
		if !secured && !isLocal(target) {
			return nil, fmt.Errorf("%s is another machine: a token needs TLS", target)
		}
		bearer := bearer{token: strings.TrimSpace(string(token)), secured: secured}
		options = append(options, grpc.WithPerRPCCredentials(bearer))
	}
	return options, nil
}

func (c Credentials) config() (*tls.Config, error) {
	pem, err := os.ReadFile(c.Authority)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{
		RootCAs: x509.NewCertPool(), ServerName: c.ServerName, MinVersion: tls.VersionTLS12,
	}
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", c.Authority)
	}
	if (c.Certificate == "") != (c.Key == "") {
		return nil, errors.New("a certificate and its key go together")
	}
	if c.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", c.Certificate, c.Key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// bearer sends a token with each call.
type bearer struct {
	token   string
	secured bool
}

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

func (b bearer) RequireTransportSecurity() bool { return b.secured }

// isLocal tells whether a target is on this machine.
func isLocal(target string) bool {
	if strings.HasPrefix(target, "unix:") {
		return true
	}
	if _, endpoint, found := strings.Cut(target, ":///"); found {
		target = endpoint
	}
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		host = target
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
