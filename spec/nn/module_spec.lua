--- nn.Module: registration, walking, state, modes, conversion and printing.
local ag = require "argand"
local nn = ag.nn

local function names_of(iterator)
  local names = {}
  for name in iterator do names[#names + 1] = name end
  return names
end

local function raised(fn, ...)
  local ok, err = pcall(fn, ...)
  assert.is_false(ok, "no error was raised")
  assert.is_truthy(err.where and err.where:find("module_spec.lua:", 1, true), tostring(err))
  return err
end

local Block = nn.Module:extend "Block"
function Block:init(width)
  self.norm = nn.LayerNorm(width)
  self.scale = nn.parameter(ag.ones(width))
  local plain = nn.Linear(width, 3, { bias = false })
  self.heads = { nn.Linear(width, 2), plain, gate = nn.Linear(width, 1), bias = nn.Linear(1, 1) }
  self:register_buffer("mean", ag.zeros(width))
  self.width = width
  self.first = self.heads[1]
end

function Block:forward(x) return self.heads[1](self.norm(x) * self.scale) end

local block_parameters = { "norm.weight", "norm.bias", "scale", "heads.1.weight", "heads.1.bias", "heads.2.weight",
  "heads.bias.weight", "heads.bias.bias", "heads.gate.weight", "heads.gate.bias" }

describe("Module", function()
  it("lists parameters in the order of registration, shared ones once, under dotted names", function()
    local block = Block(4)
    assert.same(block_parameters, names_of(block:named_parameters()))
    assert.equal(#block_parameters, #block:parameters())
    assert.equal(block.norm.weight, block:parameters()[1])
    assert.equal(4 + 4 + 4 + 8 + 2 + 12 + 2 + 4 + 1, block:num_parameters())
    local model = nn.Sequential(block, nn.ReLU(), nn.Sequential(nn.Linear(2, 2)))
    local names = names_of(model:named_parameters())
    assert.equal("1.norm.weight", names[1])
    assert.equal("3.1.bias", names[#names])
  end)

  it("lists buffers, modules and children", function()
    local block = Block(4)
    assert.same({ "mean" }, names_of(block:named_buffers()))
    assert.same({ block.mean }, block:buffers())
    assert.same({ "norm", "heads.1", "heads.2", "heads.bias", "heads.gate" }, names_of(block:named_children()))
    assert.same({ block, block.norm, block.heads[1], block.heads[2], block.heads.bias, block.heads.gate }, block:modules())
    assert.equal(5, #block:children())
  end)

  it("takes fields as what they are when they are assigned", function()
    local module = nn.Module()
    module.plain = ag.zeros(2)
    module.weight = ag.zeros(2, { requires_grad = true })
    module.result = module.weight * 2
    module.list = { ag.zeros(1, { requires_grad = true }), ag.zeros(1) }
    assert.same({ "weight", "list.1" }, names_of(module:named_parameters()))
    module.weight.requires_grad = false -- frozen, still a parameter
    assert.same({ "weight", "list.1" }, names_of(module:named_parameters()))
    module.weight = nil
    assert.same({ "list.1" }, names_of(module:named_parameters()))
    module.weight = ag.zeros(2, { requires_grad = true })
    assert.same({ "list.1", "weight" }, names_of(module:named_parameters()))
    module.weight = "text"
    assert.same({ "list.1" }, names_of(module:named_parameters()))
  end)

  it("walks modules that hold each other once", function()
    local a, b = nn.Module(), nn.Module()
    a.b, b.a = b, a
    a.table = { a }
    a.table.table = a.table
    b.weight = nn.parameter(ag.zeros(1))
    assert.same({ "b.weight" }, names_of(a:named_parameters()))
    assert.equal(2, #a:modules())
  end)

  it("needs a forward of its own", function()
    local err = raised(function() return nn.Module:extend("Net")()(ag.zeros(1)) end)
    assert.equal("Net: the module has no forward(); define Net:forward(x)", err.message)
    assert.equal("register_buffer: mean: expected a tensor, got number",
      raised(function() nn.Module():register_buffer("mean", 3) end).message)
  end)

  it("sets training mode everywhere and applies functions children first", function()
    local block = Block(4)
    assert.is_true(block.training)
    assert.equal(block, block:eval())
    for _, module in ipairs(block:modules()) do assert.is_false(module.training) end
    block:train()
    assert.is_true(block.heads.gate.training)
    local seen = {}
    block:apply(function(module) seen[#seen + 1] = module end)
    assert.equal(block, seen[6])
    assert.equal(block.norm, seen[5])
  end)

  it("forgets gradients", function()
    local block = Block(4)
    block(ag.randn(3, 4)):sum():backward()
    assert.is_truthy(block.scale.grad)
    block:zero_grad()
    for _, parameter in ipairs(block:parameters()) do assert.is_nil(parameter.grad) end
  end)
end)

describe("state_dict", function()
  it("holds parameters and buffers under every name, sharing the storage", function()
    local block = Block(4)
    local state, count = block:state_dict(), 0
    for _ in pairs(state) do count = count + 1 end
    assert.equal(#block_parameters + 1, count)
    assert.is_false(state.scale.requires_grad)
    assert.is_true(state.scale:shares_storage(block.scale))
    local tied = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    tied[2].weight = tied[1].weight
    assert.is_truthy(tied:state_dict()["2.weight"])
    assert.same({ "1.weight", "1.bias", "2.bias" }, names_of(tied:named_parameters()))
  end)

  it("goes into another module of the same shape, converting dtypes", function()
    local from, to = Block(4), Block(4):to "f64"
    from.mean:fill_(3)
    local scale = to.scale
    to:load_state_dict(from:state_dict())
    assert.equal(scale, to.scale)
    assert.equal("f64", to.scale.dtype)
    assert.is_true(to.scale.requires_grad and to.scale.is_leaf)
    for name, tensor in pairs(from:state_dict()) do
      assert.is_true(to:state_dict()[name]:equal(tensor:to "f64"), name)
    end
    from.scale:detach():fill_(9)
    assert.equal(1, to.scale[1]:item()) -- a copy
  end)

  it("is refused with all faults in one error, and nothing is changed", function()
    local block = Block(4)
    local state = Block(4):state_dict()
    state["norm.weight"] = nil
    state.mean = nil
    state.extra, state.other = ag.zeros(1), ag.zeros(1)
    state.scale = ag.zeros(5)
    state["heads.1.bias"] = "text"
    state["norm.bias"] = ag.ones(4)
    local err = raised(function() block:load_state_dict(state) end)
    assert.equal("load_state_dict: Block: missing: mean, norm.weight; unexpected: extra, other; mismatched: "
      .. "heads.1.bias (expected a tensor, got string), scale (expected [4], got [5]); "
      .. "{strict = false} loads the names that both have", err.message)
    assert.same({ 0, 0, 0, 0 }, block.norm.bias:tolist())
    assert.equal("load_state_dict: state: expected a table of tensors, got nil",
      raised(function() block:load_state_dict() end).message)
  end)

  it("loads the names that both have when not strict", function()
    local block = Block(4)
    local missing, unexpected = block:load_state_dict(
      { ["norm.bias"] = ag.ones(4), extra = ag.zeros(1) }, { strict = false })
    assert.equal(#block_parameters, #missing)
    assert.same({ "extra" }, unexpected)
    assert.same({ 1, 1, 1, 1 }, block.norm.bias:tolist())
    assert.is_truthy(raised(function() block:load_state_dict({ scale = ag.zeros(5) }, { strict = false }) end).message
      :find "mismatched: scale")
  end)
end)

describe("to", function()
  it("converts float tensors and keeps what is shared shared", function()
    local model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[2].weight = model[1].weight
    model:register_buffer("counts", ag.zeros(2, { dtype = "i64" }))
    local weight = model[1].weight:tolist()
    assert.equal(model, model:to "f64")
    assert.equal(model[1].weight, model[2].weight)
    assert.equal(3, #model:parameters())
    assert.equal("i64", model.counts.dtype)
    assert.same(weight, model[1].weight:tolist())
    for _, parameter in ipairs(model:parameters()) do
      assert.equal("f64", parameter.dtype)
      assert.is_true(parameter.requires_grad and parameter.is_leaf)
    end
    assert.equal("f64", model(ag.zeros(1, 3, { dtype = "f64" })).dtype)
    local kept = model[1].weight
    model:to "f64"
    assert.equal(kept, model[1].weight)
    model:to "cpu"
    assert.equal(kept, model[1].weight)
  end)

  it("keeps frozen parameters frozen and those in tables in place", function()
    local block = Block(4)
    block.scale.requires_grad = false
    block:to "bf16"
    assert.is_false(block.scale.requires_grad)
    assert.equal("bf16", block.heads.gate.weight.dtype)
    assert.equal(block.first, block.heads[1])
    assert.same(block_parameters, names_of(block:named_parameters()))
  end)

  it("refuses unknown targets", function()
    assert.equal("argument", raised(function() Block(2):to "f23" end).code)
  end)
end)

describe("tostring", function()
  it("shows the tree of modules", function()
    assert.equal("Linear(in_features=3, out_features=4, bias=false)", tostring(nn.Linear(3, 4, { bias = false })))
    local model = nn.Sequential(nn.Linear(784, 256, { activation = "relu" }), nn.Dropout(0.2),
      nn.Sequential(nn.LayerNorm(256), nn.Embedding(9, 2, { padding_idx = 1 })))
    assert.equal([[
Sequential(
  (1): Linear(in_features=784, out_features=256, bias=true, activation=relu)
  (2): Dropout(p=0.2)
  (3): Sequential(
    (1): LayerNorm([256], eps=1e-05, affine=true)
    (2): Embedding(9, 2, padding_idx=1)
  )
)]], tostring(model))
    assert.is_truthy(tostring(Block(2)):find "%(heads%.gate%): Linear")
    assert.equal("Sequential()", tostring(nn.Sequential()))
  end)
end)
