// Puts our tracker in the place of the server that the tests of bittorrent-tracker start. Load it
// with `node -r`. Clients talk to a relay, which passes every byte on and only watches: the tests
// wait for events of the server.
'use strict'
const { spawn } = require('child_process')
const dgram = require('dgram')
const { EventEmitter } = require('events')
const http = require('http')
const Module = require('module')
const querystring = require('querystring')

const headworks = process.env.HEADWORKS

class Server extends EventEmitter {
  constructor (options) {
    super()
    this.kind = options.udp ? 'udp' : 'http'
  }

  listen (_port, done) {
    const listen = this.kind === 'udp' ? ['-l', '', '-u', '127.0.0.1:0'] : ['-l', '127.0.0.1:0', '-u', '']
    const more = ['--admin-listen', '127.0.0.1:0', '--tracker-full-scrape', 'true']
    this.process = spawn(headworks, ['tracker', ...listen, ...more], { stdio: ['ignore', 'ignore', 'pipe'] })
    let log = ''
    let started = false
    this.process.stderr.on('data', data => {
      log += data
      const port = /^tracker: .*127\.0\.0\.1:(\d+)/m.exec(log)
      if (port && !started) {
        started = true
        this.relay(Number(port[1]), done)
      }
    })
    this.process.on('exit', code => {
      if (!started) this.emit('error', new Error(`the tracker ended with code ${code}: ${log}`))
    })
  }

  relay (port, done) {
    if (this.kind === 'udp') this.relayUdp(port)
    else this.relayHttp(port)
    this[this.kind].once('listening', done)
  }

  relayHttp (port) {
    this.http = http.createServer((request, response) => {
      const { url: path, headers } = request
      http.get({ host: '127.0.0.1', port, path, headers, agent: false }, answer => {
        response.writeHead(answer.statusCode, answer.headers)
        const params = querystring.parse(path.split('?')[1])
        answer.on('end', () => this.watch(params.event, params))
        answer.pipe(response)
      })
    })
    this.http.keepAliveTimeout = 1
    this.http.listen(0, '127.0.0.1')
  }

  relayUdp (port) {
    this.sockets = new Map()
    this.udp = dgram.createSocket('udp4')
    this.udp.on('message', (message, client) => {
      let socket = this.sockets.get(client.port)
      if (!socket) {
        socket = dgram.createSocket('udp4')
        socket.on('message', answer => this.udp && this.udp.send(answer, client.port, client.address))
        this.sockets.set(client.port, socket)
      }
      socket.send(message, port, '127.0.0.1')
      const isAnnounce = message.length >= 98 && message.readUInt32BE(8) === 1
      if (isAnnounce) this.watch([undefined, 'completed', 'started', 'stopped'][message.readUInt32BE(80)], {})
    })
    this.udp.bind(0, '127.0.0.1')
  }

  watch (event, params) {
    const names = { started: 'start', stopped: 'stop', completed: 'complete' }
    this.emit(names[event] || 'update', {}, params)
  }

  close (done) {
    this.process.removeAllListeners('exit')
    this.process.kill('SIGKILL')
    if (this.http) this.http.close()
    if (this.udp) {
      this.udp.close()
      this.udp = null
      for (const socket of this.sockets.values()) socket.close()
    }
    if (done) setImmediate(done)
  }
}

function binaryDictionary (decode) {
  const dictionary = {}
  decode.position += 1
  while (decode.data[decode.position] !== 'e'.charCodeAt(0)) {
    const key = decode.buffer().toString('latin1')
    dictionary[key] = decode.next()
  }
  decode.position += 1
  return dictionary
}

const load = Module._load
Module._load = function (name, parent, ...rest) {
  const loaded = load.call(this, name, parent, ...rest)
  if (name === '../' && loaded.Server) loaded.Server = Server
  // This version reads the keys of a dictionary as UTF-8, so that it finds info hashes only in the
  // responses of its own server, which writes them so.
  if (name === 'bencode') loaded.decode.dictionary = () => binaryDictionary(loaded.decode)
  // There is no tracker for WebTorrent here.
  if (name === 'tape') return Object.assign((title, ...test) => (title.startsWith('ws: ') ? loaded.skip : loaded)(title, ...test), loaded)
  return loaded
}
