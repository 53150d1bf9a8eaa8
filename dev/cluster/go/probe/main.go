// probe is the smoke test's only image: a server that tells who it is, and a client that prints what it got.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/"

func main() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "serve":
		err = serve()
	case len(os.Args) == 3 && os.Args[1] == "get":
		err = get(os.Args[2])
	default:
		err = fmt.Errorf("usage: probe serve | get URL")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func serve() error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	fmt.Println("serving as", name)
	return http.ListenAndServe(":8080", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, name, "saw", strings.Split(r.RemoteAddr, ":")[0])
	}))
}

// get asks for 6 seconds: a pod's name resolves only once its address is known. An https address is asked with the pod's own token.
func get(url string) error {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: 3 * time.Second}
	if request.URL.Scheme == "https" {
		if client.Transport, err = clusterTransport(request); err != nil {
			return err
		}
	}
	for deadline := time.Now().Add(6 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		response, err := client.Do(request)
		if err == nil {
			defer response.Body.Close()
			fmt.Println(response.StatusCode)
			_, err = io.Copy(os.Stdout, response.Body)
			return err
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

func clusterTransport(request *http.Request) (*http.Transport, error) {
	token, err := os.ReadFile(serviceAccount + "token")
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(serviceAccount + "ca.crt")
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+string(token))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}, nil
}
