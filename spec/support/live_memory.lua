--- live_memory: what the engine holds now, after full collections, and what a spec file has left behind.
local ag = require "argand"

local M = {}

--- Bytes in tensors, small structs of the engine (a tiny tensor is nothing else) and nodes on the tape once all garbage is
-- gone. Compiled traces hold the closures they were made for, and so their tensors: flushed. Collected twice, since a finalizer
-- may drop the last reference to more.
function M.now()
  jit.flush()
  jit.flush() -- compiled traces hold the objects that they were recorded with
  collectgarbage()
  collectgarbage()
  local memory = ag.memory()
  return {live = memory.live, blocks = memory.heap_blocks, nodes = memory.nodes}
end

--- A sentence about what is held now beyond `before`, or nil.
function M.difference(before)
  local now = M.now()
  local bytes, blocks, nodes = now.live - before.live, now.blocks - before.blocks, now.nodes - before.nodes
  if bytes == 0 and blocks == 0 and nodes == 0 then return nil end
  return ("left %+d bytes, %+d heap blocks and %+d tape nodes behind"):format(bytes, blocks, nodes)
end

--- Drops the functions and environments that busted keeps for `element` and everything below it.
function M.forget(busted, element)
  for _, child in ipairs(busted.children(element)) do
    M.forget(busted, child)
    child.run = nil
    child.env = nil
  end
end

return M
