--- live_memory: what the engine holds now, after full collections, and what a spec file has left behind.
local ag = require "argand"

local M = {}

--- Bytes in tensors, small structs of the engine (a tiny tensor is nothing else) and nodes on the tape once all garbage is
-- gone. Compiled traces hold the closures they were made for, and so their tensors: flushed. Collected twice, since a finalizer
-- may drop the last reference to more.
function M.now()
  jit.flush()
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

--- Raises unless the process still computes and differentiates.
function M.sane()
  local x = ag.tensor({1, 2, 3}, {requires_grad = true})
  local sum = (x * x):sum()
  sum:backward()
  assert(sum:item() == 14 and x.grad:get(3) == 6, "the process is not usable any more")
end

--- Raises unless what is held is what it was.
function M.assert_same(before)
  local difference = M.difference(before)
  for _ = 1, 3 do -- a value may be left in a stale slot of Lua's: other work overwrites it, what is lost stays lost
    if not difference then return end
    coroutine.wrap(M.sane)()
    difference = M.difference(before)
  end
  if difference then error(difference, 0) end
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
