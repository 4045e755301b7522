--- agent: the launcher's other side on a remote host: starts the ranks of that host and ends them when its stdin ends.
--
-- First a frame "node" comes on stdin, then frames "signal". What the ranks write and how they end goes to stdout in frames.
local core = require "argand.core"
local Loop = require "argand.run.loop"
local Ranks = require "argand.run.ranks"
local keys = require "argand.run.keys"
local wire = require "argand.run.wire"
local process = core.process

local M = {}

local SIGTERM, SIGKILL = 15, 9
local MAX_GRACE_S = 2 -- nobody is there any more who would wait longer

local Agent = {}
Agent.__index = Agent

function Agent:send(kind, name, payload)
  if self.is_deaf then return end
  if not process.write(1, wire.frame(kind, name, payload)) then self:stop() end
end

function Agent:started(rank, pid) self:send("started", rank, tostring(pid)) end
function Agent:output(rank, stream, bytes) self:send(stream, rank, bytes) end
function Agent:warning(_, text) self:send("warning", "-", text) end
function Agent:status(rank, kind, text) self:send("status", rank, kind .. " " .. text) end
function Agent:ended(rank, code, signal)
  self:send("ended", rank, signal and "signal " .. signal or "code " .. code)
end

--- The launcher is gone: all ranks end, with some seconds to do so.
function Agent:stop()
  self.is_deaf = true
  if self.kill_at then return end
  self.kill_at = core.now() + math.min(self.node and self.node.grace or 0, MAX_GRACE_S)
  if self.ranks then self.ranks:signal(SIGTERM) end
end

function Agent:start(payload)
  local node, err = wire.decode(payload)
  if type(node) ~= "table" then
    self:send("failed", "-", "the launcher speaks another version: " .. tostring(err))
    return self:stop()
  end
  self.node = node
  local ok
  ok, err = pcall(function()
    self.key_file = node.key and keys.store(node.key)
    for _, rank in ipairs(node.ranks) do rank.variables.ARGAND_KEY_FILE = self.key_file end
    self.guard_fd = self.loop:guard(self.key_file)
  end)
  self.ranks = Ranks.new(self.loop, node, self, self.guard_fd)
  if ok then ok, err = self.ranks:start() end
  if not ok then self:send("failed", "-", tostring(err)) end
end

function Agent:read_stdin(reader)
  local bytes = process.read(0)
  if not bytes then
    self.loop:read(0, nil)
    self:stop()
  elseif not reader(bytes) then
    self:send("failed", "-", "the launcher sent what is no frame")
    self:stop()
  end
end

function Agent:is_done()
  if not self.ranks then return self.kill_at ~= nil end
  return self.ranks.num_alive == 0
end

--- Runs until all ranks of this host have ended.
---@return integer exit_code
function M.main()
  local self = setmetatable({}, Agent)
  process.adopt()
  self.loop = Loop.new(function() self:stop() end)
  process.write(1, wire.HELLO)
  local reader = wire.reader(function(kind, _, payload)
    if kind == "node" and not self.node then self:start(payload)
    elseif kind == "signal" and self.ranks then self.ranks:signal(tonumber(payload) or SIGTERM) end
  end)
  self.loop:read(0, function() self:read_stdin(reader) end)
  while not self:is_done() do
    local left = self.kill_at and self.kill_at - core.now() or 3600
    if left <= 0 then
      self.ranks:signal(SIGKILL)
      left = 1
    end
    self.loop:step(math.max(left, 0))
  end
  if self.ranks then self.ranks:finish() end
  keys.remove(self.key_file)
  self:send("bye", "-", "")
  return 0
end

return M
