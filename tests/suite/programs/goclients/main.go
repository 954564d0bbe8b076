// A session of the Go API clients of Vault and OpenBao with the broker: URL TOKEN.
package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"strings"

	openbao "github.com/openbao/openbao/api/v2"
	vault "github.com/hashicorp/vault/api"
)

type data = map[string]interface{}

// What both clients can do; they share no types.
type client struct {
	name  string
	write func(path string, body data) (data, error)
	read  func(path string) (data, error)
	list  func(path string) (data, error)
	erase func(path string) error
}

func main() {
	url, token := os.Args[1], os.Args[2]
	for _, client := range []client{ofVault(url, token), ofOpenBao(url, token)} {
		session(client)
		fmt.Println(client.name + ": a whole session")
	}
}

func ofVault(url, token string) client {
	config := vault.DefaultConfig()
	config.Address = url
	it, err := vault.NewClient(config)
	good(err)
	it.SetToken(token)
	content := func(secret *vault.Secret, err error) (data, error) {
		if err != nil || secret == nil {
			return nil, err
		}
		return secret.Data, nil
	}
	return client{
		name:  "vault",
		write: func(path string, body data) (data, error) { return content(it.Logical().Write(path, body)) },
		read:  func(path string) (data, error) { return content(it.Logical().Read(path)) },
		list:  func(path string) (data, error) { return content(it.Logical().List(path)) },
		erase: func(path string) error { _, err := it.Logical().Delete(path); return err },
	}
}

func ofOpenBao(url, token string) client {
	config := openbao.DefaultConfig()
	config.Address = url
	it, err := openbao.NewClient(config)
	good(err)
	it.SetToken(token)
	content := func(secret *openbao.Secret, err error) (data, error) {
		if err != nil || secret == nil {
			return nil, err
		}
		return secret.Data, nil
	}
	return client{
		name:  "openbao",
		write: func(path string, body data) (data, error) { return content(it.Logical().Write(path, body)) },
		read:  func(path string) (data, error) { return content(it.Logical().Read(path)) },
		list:  func(path string) (data, error) { return content(it.Logical().List(path)) },
		erase: func(path string) error { _, err := it.Logical().Delete(path); return err },
	}
}

func session(c client) {
	write := func(path string, body data) data {
		answer, err := c.write("transit/"+path, body)
		good(err)
		return answer
	}
	plaintext := base64.StdEncoding.EncodeToString([]byte("secret"))
	for _, kind := range []string{"aes256-gcm96", "aes256-cbc"} {
		key := "app-" + c.name + "-" + kind
		write("keys/"+key, data{"type": kind})
		sealed := write("encrypt/"+key, data{"plaintext": plaintext})["ciphertext"]
		same(write("decrypt/"+key, data{"ciphertext": sealed})["plaintext"], plaintext)
		write("keys/"+key+"/rotate", data{})
		renewed := write("rewrap/"+key, data{"ciphertext": sealed})["ciphertext"].(string)
		truth(strings.HasPrefix(renewed, "vault:v2:"), renewed)
		made := write("datakey/plaintext/"+key, data{"bits": 256})
		same(write("decrypt/"+key, data{"ciphertext": made["ciphertext"]})["plaintext"], made["plaintext"])
		batch := []data{{"plaintext": plaintext, "reference": "one"}, {"plaintext": plaintext}}
		results := write("encrypt/"+key, data{"batch_input": batch})["batch_results"].([]interface{})
		same(results[0].(data)["reference"], "one")
		truth(len(results) == 2, results)
	}

	key := "app-" + c.name + "-ec"
	write("keys/"+key, data{"type": "ecdsa-p256"})
	signature := write("sign/"+key+"/sha2-256", data{"input": plaintext})["signature"]
	same(write("verify/"+key, data{"input": plaintext, "signature": signature})["valid"], true)
	other := base64.StdEncoding.EncodeToString([]byte("other"))
	same(write("verify/"+key, data{"input": other, "signature": signature})["valid"], false)
	shown, err := c.read("transit/keys/" + key)
	good(err)
	same(shown["type"], "ecdsa-p256")

	mac := "app-" + c.name + "-hmac"
	write("keys/"+mac, data{"type": "hmac"})
	made := write("hmac/"+mac, data{"input": plaintext})["hmac"]
	same(write("verify/"+mac, data{"input": plaintext, "hmac": made})["valid"], true)
	truth(len(write("random/16", data{})["random_bytes"].(string)) == 24, "random bytes")

	names, err := c.list("transit/keys")
	good(err)
	truth(len(names["keys"].([]interface{})) >= 4, names)
	refused(c.erase("transit/keys/"+mac), "deletion is not allowed")
	write("keys/"+mac+"/config", data{"deletion_allowed": true})
	good(c.erase("transit/keys/" + mac))
	gone, err := c.read("transit/keys/" + mac)
	truth(gone == nil && err == nil, gone)
	_, err = c.write("transit/encrypt/other", data{"plaintext": plaintext})
	refused(err, "permission denied")
}

func good(err error) {
	if err != nil {
		panic(err)
	}
}

func refused(err error, words string) {
	truth(err != nil && strings.Contains(err.Error(), words), err)
}

func same(found, expected interface{}) {
	truth(found == expected, found)
}

func truth(it bool, said interface{}) {
	if !it {
		panic(fmt.Sprint("not so: ", said))
	}
}
