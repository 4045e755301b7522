--- ops: every call of every op's samples, forward and backward, with the n-th allocation failing, for every n until it passes.
local ag = require "argand"
local core = require "argand.core"
local cases = require "support.cases"
local live_memory = require "support.live_memory"
local samples = require "support.samples"

local most = 2000

-- The first dtype that the op takes.
local function dtype_for(op, device)
  for _, dtype in ipairs {"f32", "i64", "bool"} do
    if ag.supports {op = op, dtype = dtype, device = device} then return dtype end
  end
end

-- Runs run() with the n-th allocation failing, n = 1, 2, ...: an error with code "memory" each time, and in the end nothing
-- lost. restore() puts back what run may have left where it stays.
local function each_allocation(check, name, run, restore)
  coroutine.wrap(run)() -- what is made once and kept (slabs, caches) is there from here on
  restore()
  for _ = 1, 3 do coroutine.wrap(live_memory.sane)() end -- over what stale slots of Lua's still hold
  local before = live_memory.now()
  for n = 1, most do
    -- In a coroutine, whose stack goes with it: on ours a value may outlive its use.
    local ok, err = coroutine.resume(coroutine.create(function()
      core.memory_fail_after(n)
      run()
    end))
    core.memory_fail_after(0)
    restore()
    check(("%s, allocation %d"):format(name, n), function()
      if ok then return end
      assert(type(err) == "table" and err.code == "memory", "not a memory error: " .. tostring(err))
      assert(err.op, "no op is named: " .. err.message)
    end)
    err = nil -- luacheck: ignore
    if ok then break end
    if n == most then error(name .. " never passes") end
  end
  check(name .. ", what is held", function()
    live_memory.sane()
    live_memory.assert_same(before)
  end)
end

local function forward(check, name, op, args)
  each_allocation(check, name .. " forward", function() samples.run(op, args) end, function() end)
end

local function backward(check, name, op, args, inputs, sample)
  local leaves = {}
  for _, input in ipairs(inputs) do
    local is_wanted = sample.grads == nil
    for _, wanted in ipairs(sample.grads or {}) do is_wanted = is_wanted or wanted == input.name end
    if is_wanted and input.dtype == "f32" and not input.is_list then
      local leaf = input.view(input.base):detach()
      leaf.requires_grad = true
      args[input.name] = leaf
      leaves[#leaves + 1] = leaf
    end
  end
  if #leaves == 0 then return end
  local function run()
    for _, result in ipairs(samples.run(op, args)) do
      if result.requires_grad then result:backward {gradient = result:detach(), retain_graph = true} end
    end
  end
  each_allocation(check, name .. " backward", run, function() core.clear_grads(leaves) end)
end

local function check_call(check, name, op, call, options)
  local sample = samples.load(op)
  local args, inputs = samples.build(op, call, options)
  forward(check, name, op, args)
  if core.op_info(op).differentiable and sample.grads ~= false and call.gradient ~= false and options.dtype == "f32" then
    backward(check, name, op, args, inputs, sample)
  end
end

local function check_op(check, op, device)
  local dtype = dtype_for(op, device)
  for _, layout in ipairs {"contiguous", "transposed"} do
    for position, call in ipairs(samples.calls(samples.load(op), layout)) do
      if layout == "contiguous" or position == 1 then
        local name = ("%s call %d %s"):format(op, position, layout)
        -- On a stack of its own, which takes with it what the next call must not find held.
        coroutine.wrap(check_call)(check, name, op, call, {dtype = dtype, device = device, layout = layout})
      end
    end
  end
end

-- Interpreted: compiled code leaves values of its own in Lua's stack, and then what is held is not exact.
local was_compiling = jit.status()

describe("a failing allocation", function()
  setup(function() jit.off() end)
  teardown(function() if was_compiling then jit.on() end end)

  for _, device in ipairs(ag.devices()) do
    it("is an error and loses nothing in every op on " .. device, function()
      local check = cases.begin()
      for _, op in ipairs(core.op_names()) do check_op(check, op, device) end
      check.done()
    end)
  end
end)
