--- stubs_spec: `argand help --luacats` declares every public name, with its parameters, as Lua that loads; what `argand help` refuses.
local ag = require "argand"
local core = require "argand.core"
local stubs = require "argand.stubs"
local cases = require "support.cases"
local command = require("support.terminal").this_command()

local text = stubs.text()
local module_part = assert(text:match("\n%-%-%-@class argand\n(.-)\nlocal ag"))
local tensor_part = assert(text:match("\n%-%-%-@class argand%.Tensor .-\n(.-)\n\n"))

-- Declared as a function `owner .. name`, or as a field of the class in `fields`.
local function is_declared(owner, fields, name)
  local field = ("\n" .. fields):find("\n---@field " .. name .. "%??[ %w]") or fields:find('---@field ["' .. name .. '"]', 1, true)
  return field or text:find("\nfunction " .. owner .. name .. "(", 1, true)
end

describe("the declarations for editors", function()
  it("are Lua that loads, and declares functions only", function()
    local declared = assert(loadstring(text, "=stubs"))()
    for _, name in ipairs(core.op_names()) do assert.is_function(declared[name], name) end
  end)

  it("name every public function, field and method", function()
    local check = cases.begin()
    for name in pairs(ag) do
      local info = core.op_info(name)
      if not (info and info.hidden) then
        check("ag." .. name, function() assert.truthy(is_declared("ag.", module_part, name)) end)
      end
    end
    for name in pairs(core.methods) do
      local info = core.op_info((name:gsub("_$", "")))
      if not (info and info.hidden) then
        check("t:" .. name, function() assert.truthy(is_declared("Tensor:", tensor_part, name)) end)
      end
    end
    check.done()
  end)

  it("declare nothing that is not there", function()
    local check = cases.begin()
    for name in module_part:gmatch("%-%-%-@field ([%w_]+)") do
      check("ag." .. name, function() assert.is_not_nil(ag[name]) end)
    end
    for name in tensor_part:gmatch("%-%-%-@field %[?\"?([%w_]+)") do
      check("t." .. name, function() assert.is_not_nil(core.methods[name]) end)
    end
    check.done()
  end)

  it("give types, defaults and the form with options of a call", function()
    assert.truthy(text:find([[
---@param x argand.Tensor|number
---@param dim? integer default -1
---@return argand.Tensor
---@overload fun(x: argand.Tensor|number, options: {dim?: integer, out?: argand.Tensor}): argand.Tensor
function ag.softmax(x, dim) end]], 1, true))
    assert.truthy(text:find('---@param activation? "none"|"relu"|"gelu" default none', 1, true))
    assert.truthy(text:find("---@return argand.Tensor, argand.Tensor\n", 1, true))
    assert.truthy(text:find("function Tensor:relu_() end", 1, true))
  end)
end)

describe("argand help", function()
  it("tells of functions by the comments above them", function()
    local help = require "argand.help"
    local lines = help.function_text "dist.all_reduce"
    assert.truthy(lines:find("^dist.all_reduce%(t, opts%)\n  The op"))
    assert.falsy(lines:find "param group")
    assert.truthy(help.function_text("nn.Linear"):find("^nn.Linear%(in_features, out_features, opts%)\n"))
    for _, name in ipairs {"softmx", "dist", "dist.nothing", "nn.Linear.weight", "dist.all_reduce.x", ""} do
      assert.is_nil(help.function_text(name))
    end
  end)

  it("refuses an unknown name with the near one, and blames no line", function()
    local pipe = assert(io.popen(("%q help softmx 2>&1; echo $?"):format(command)))
    local output = pipe:read("*a")
    pipe:close()
    assert.equal('argand: help: there is no op "softmx"; did you mean "softmax"? `argand help` lists all\n1\n', output)
  end)
end)
