//! Typed builders with the context, the block and the location filled in.

use melior::Context;
use melior::dialect::arith::{CmpfPredicate, CmpiPredicate};
use melior::dialect::llvm::r#type as llvm_type;
use melior::dialect::ods::{arith, llvm, scf};
use melior::ir::attribute::{
    DenseI32ArrayAttribute, FlatSymbolRefAttribute, FloatAttribute, IntegerAttribute,
    StringAttribute, TypeAttribute,
};
use melior::ir::operation::{Operation, OperationLike, OperationMutLike, OperationRef};
use melior::ir::r#type::IntegerType;
use melior::ir::{
    Attribute, Block, BlockLike, BlockRef, Location, Region, RegionLike, Type, Value,
};

use crate::mnemonic::{Asm, Intrinsic};

/// The types that lowering uses.
#[derive(Clone, Copy)]
pub(super) struct Types<'c> {
    pub(super) i1: Type<'c>,
    pub(super) i8: Type<'c>,
    pub(super) i16: Type<'c>,
    pub(super) i32: Type<'c>,
    pub(super) i64: Type<'c>,
    pub(super) f16: Type<'c>,
    pub(super) bf16: Type<'c>,
    pub(super) f32: Type<'c>,
    pub(super) f64: Type<'c>,
    /// Generic pointer.
    pub(super) pointer: Type<'c>,
    /// Pointer to memory of the device.
    pub(super) global: Type<'c>,
    /// Pointer to memory of the CTA.
    pub(super) shared: Type<'c>,
}

impl<'c> Types<'c> {
    fn new(context: &'c Context) -> Types<'c> {
        let int = |bits| IntegerType::new(context, bits).into();
        Types {
            i1: int(1),
            i8: int(8),
            i16: int(16),
            i32: int(32),
            i64: int(64),
            f16: Type::float16(context),
            bf16: Type::bfloat16(context),
            f32: Type::float32(context),
            f64: Type::float64(context),
            pointer: llvm_type::pointer(context, 0),
            global: llvm_type::pointer(context, 1),
            shared: llvm_type::pointer(context, 3),
        }
    }
}

/// Appends operations to a block.
#[derive(Clone, Copy)]
pub(super) struct Builder<'c, 'm> {
    pub(super) context: &'c Context,
    pub(super) types: Types<'c>,
    pub(super) block: BlockRef<'c, 'm>,
    pub(super) location: Location<'c>,
}

macro_rules! binary_operations {
    ($($name:ident),* $(,)?) => {$(
        pub(super) fn $name(&self, a: Value<'c, 'm>, b: Value<'c, 'm>) -> Value<'c, 'm> {
            self.value(arith::$name(self.context, a, b, self.location))
        }
    )*};
}

macro_rules! casts {
    ($($name:ident),* $(,)?) => {$(
        pub(super) fn $name(&self, to: Type<'c>, x: Value<'c, 'm>) -> Value<'c, 'm> {
            self.value(arith::$name(self.context, to, x, self.location))
        }
    )*};
}

impl<'c, 'm> Builder<'c, 'm> {
    pub(super) fn new(
        context: &'c Context,
        block: BlockRef<'c, 'm>,
        location: Location<'c>,
    ) -> Builder<'c, 'm> {
        Builder { context, types: Types::new(context), block, location }
    }

    pub(super) fn push(&self, operation: impl Into<Operation<'c>>) -> OperationRef<'c, 'm> {
        self.block.append_operation(operation.into())
    }

    pub(super) fn value(&self, operation: impl Into<Operation<'c>>) -> Value<'c, 'm> {
        self.push(operation).result(0).expect("the operation has one result").into()
    }

    binary_operations!(
        addf, subf, mulf, divf, addi, subi, muli, divsi, divui, remsi, remui, andi, ori, xori,
        shli, shrsi, shrui, minsi, minui, maxsi, maxui, ceildivui,
    );

    casts!(extf, truncf, extsi, extui, trunci, sitofp, uitofp);

    pub(super) fn negf(&self, x: Value<'c, 'm>) -> Value<'c, 'm> {
        self.value(arith::negf(self.context, x, self.location))
    }

    /// Between types of one size, vectors included.
    pub(super) fn bitcast(&self, to: Type<'c>, x: Value<'c, 'm>) -> Value<'c, 'm> {
        self.value(llvm::bitcast(self.context, to, x, self.location))
    }

    /// The number of an address in its space.
    pub(super) fn address_number(&self, pointer: Value<'c, 'm>) -> Value<'c, 'm> {
        self.value(llvm::ptrtoint(self.context, self.types.i64, pointer, self.location))
    }

    pub(super) fn int(&self, r#type: Type<'c>, value: i64) -> Value<'c, 'm> {
        let value = IntegerAttribute::new(r#type, value).into();
        self.value(arith::constant(self.context, r#type, value, self.location))
    }

    /// `value`, rounded once to `type`.
    pub(super) fn float(&self, r#type: Type<'c>, value: f64) -> Value<'c, 'm> {
        let value = FloatAttribute::new(self.context, r#type, value).into();
        self.value(arith::constant(self.context, r#type, value, self.location))
    }

    pub(super) fn compare_int(
        &self,
        predicate: CmpiPredicate,
        a: Value<'c, 'm>,
        b: Value<'c, 'm>,
    ) -> Value<'c, 'm> {
        let predicate = IntegerAttribute::new(self.types.i64, predicate as i64).into();
        self.value(arith::cmpi(self.context, self.types.i1, a, b, predicate, self.location))
    }

    pub(super) fn compare_float(
        &self,
        predicate: CmpfPredicate,
        a: Value<'c, 'm>,
        b: Value<'c, 'm>,
    ) -> Value<'c, 'm> {
        let predicate = IntegerAttribute::new(self.types.i64, predicate as i64).into();
        self.value(arith::cmpf(self.context, self.types.i1, a, b, predicate, self.location))
    }

    pub(super) fn select(
        &self,
        condition: Value<'c, 'm>,
        a: Value<'c, 'm>,
        b: Value<'c, 'm>,
    ) -> Value<'c, 'm> {
        use melior::ir::ValueLike;
        self.value(arith::select(self.context, a.r#type(), condition, a, b, self.location))
    }

    pub(super) fn fma(
        &self,
        a: Value<'c, 'm>,
        b: Value<'c, 'm>,
        c: Value<'c, 'm>,
    ) -> Value<'c, 'm> {
        self.value(llvm::intr_fma(self.context, a, b, c, self.location))
    }

    pub(super) fn sqrt(&self, x: Value<'c, 'm>) -> Value<'c, 'm> {
        self.value(llvm::intr_sqrt(self.context, x, self.location))
    }

    pub(super) fn abs_float(&self, x: Value<'c, 'm>) -> Value<'c, 'm> {
        self.value(llvm::intr_fabs(self.context, x, self.location))
    }

    pub(super) fn intrinsic(
        &self,
        intrinsic: Intrinsic,
        result: Type<'c>,
        arguments: &[Value<'c, 'm>],
    ) -> Value<'c, 'm> {
        let call = llvm::CallIntrinsicOperation::builder(self.context, self.location)
            .results(result)
            .intrin(StringAttribute::new(self.context, intrinsic.name()))
            .args(arguments)
            .op_bundle_operands(&[])
            .op_bundle_sizes(DenseI32ArrayAttribute::new(self.context, &[]))
            .build();
        self.value(self.segments(call, &[arguments.len(), 0]))
    }

    /// Inline assembly without a result.
    pub(super) fn effect(&self, asm: &Asm, operands: &[Value<'c, 'm>]) {
        self.push(self.asm(asm, operands, None));
    }

    /// Inline assembly with results of one type.
    pub(super) fn asm_values(
        &self,
        asm: &Asm,
        operands: &[Value<'c, 'm>],
        result: Type<'c>,
        count: u32,
    ) -> Vec<Value<'c, 'm>> {
        if count == 1 {
            return vec![self.value(self.asm(asm, operands, Some(result)))];
        }
        let all = vec![result; count as usize];
        let r#struct = llvm_type::r#struct(self.context, &all, false);
        let packed = self.value(self.asm(asm, operands, Some(r#struct)));
        (0..count)
            .map(|index| {
                let position = Attribute::parse(self.context, &format!("array<i64: {index}>"))
                    .expect("an array of one number parses");
                self.value(llvm::extractvalue(
                    self.context,
                    result,
                    packed,
                    position,
                    self.location,
                ))
            })
            .collect()
    }

    fn asm(
        &self,
        asm: &Asm,
        operands: &[Value<'c, 'm>],
        result: Option<Type<'c>>,
    ) -> Operation<'c> {
        let mut builder = llvm::InlineAsmOperation::builder(self.context, self.location);
        if let Some(result) = result {
            builder = builder.res(result);
        }
        if asm.side_effects {
            builder = builder.has_side_effects(Attribute::unit(self.context));
        }
        builder
            .operands(operands)
            .asm_string(StringAttribute::new(self.context, &asm.template))
            .constraints(StringAttribute::new(self.context, &asm.constraints))
            .build()
            .into()
    }

    pub(super) fn alloca(&self, element: Type<'c>, count: i64) -> Value<'c, 'm> {
        let count = self.int(self.types.i32, count);
        let element = TypeAttribute::new(element);
        self.value(llvm::alloca(self.context, self.types.pointer, count, element, self.location))
    }

    /// A load that asserts the address to be a multiple of `alignment`.
    pub(super) fn load(
        &self,
        r#type: Type<'c>,
        address: Value<'c, 'm>,
        alignment: u32,
    ) -> Value<'c, 'm> {
        self.value(
            llvm::LoadOperation::builder(self.context, self.location)
                .res(r#type)
                .addr(address)
                .alignment(IntegerAttribute::new(self.types.i64, i64::from(alignment)))
                .build(),
        )
    }

    /// A store that asserts the address to be a multiple of `alignment`.
    pub(super) fn store(&self, value: Value<'c, 'm>, address: Value<'c, 'm>, alignment: u32) {
        self.push(
            llvm::StoreOperation::builder(self.context, self.location)
                .value(value)
                .addr(address)
                .alignment(IntegerAttribute::new(self.types.i64, i64::from(alignment)))
                .build(),
        );
    }

    /// `base + index * size of element`; the pointer keeps its state space.
    pub(super) fn offset(
        &self,
        base: Value<'c, 'm>,
        element: Type<'c>,
        index: Value<'c, 'm>,
    ) -> Value<'c, 'm> {
        use melior::ir::ValueLike;
        self.value(llvm::getelementptr(
            self.context,
            base.r#type(),
            base,
            &[index],
            DenseI32ArrayAttribute::new(self.context, &[i32::MIN]),
            TypeAttribute::new(element),
            self.location,
        ))
    }

    /// A vector of the elements.
    pub(super) fn pack(&self, element: Type<'c>, elements: &[Value<'c, 'm>]) -> Value<'c, 'm> {
        let vector = Type::vector(&[elements.len() as u64], element);
        let empty = self.value(llvm::mlir_undef(self.context, vector, self.location));
        elements.iter().zip(0..).fold(empty, |packed, (&element, index)| {
            let index = self.int(self.types.i32, index);
            self.value(llvm::insertelement(
                self.context,
                vector,
                packed,
                element,
                index,
                self.location,
            ))
        })
    }

    pub(super) fn address_of(&self, r#type: Type<'c>, global: &str) -> Value<'c, 'm> {
        let name = FlatSymbolRefAttribute::new(self.context, global);
        self.value(llvm::mlir_addressof(self.context, r#type, name, self.location))
    }

    /// Calls a declared function.
    pub(super) fn call(&self, callee: &str, arguments: &[Value<'c, 'm>], result: Option<Type<'c>>) {
        let mut call = llvm::CallOperation::builder(self.context, self.location)
            .callee(FlatSymbolRefAttribute::new(self.context, callee));
        if let Some(result) = result {
            call = call.result(result);
        }
        let call = call
            .callee_operands(arguments)
            .op_bundle_operands(&[])
            .op_bundle_sizes(DenseI32ArrayAttribute::new(self.context, &[]))
            .build();
        self.push(self.segments(call, &[arguments.len(), 0]));
    }

    /// A choice without results; returns the blocks of both arms, each still without its end.
    pub(super) fn choice(&self, condition: Value<'c, 'm>) -> (BlockRef<'c, 'm>, BlockRef<'c, 'm>) {
        let arm = || {
            let region = Region::new();
            region.append_block(Block::new(&[]));
            region
        };
        let choice =
            self.push(scf::r#if(self.context, &[], condition, arm(), arm(), self.location));
        (first_block(choice, 0), first_block(choice, 1))
    }

    /// A loop without results; returns its block, still without its end, and its variable.
    pub(super) fn counted_loop(
        &self,
        bounds: [Value<'c, 'm>; 3],
        compare: LoopCompare,
    ) -> (BlockRef<'c, 'm>, Value<'c, 'm>) {
        let region = Region::new();
        region.append_block(Block::new(&[(self.types.i32, self.location)]));
        let [start, end, step] = bounds;
        let mut builder = scf::ForOperation::builder(self.context, self.location);
        if compare == LoopCompare::Unsigned {
            builder = builder.unsigned_cmp(Attribute::unit(self.context));
        }
        let r#loop = self.push(
            builder
                .results(&[])
                .lower_bound(start)
                .upper_bound(end)
                .step(step)
                .init_args(&[])
                .region(region)
                .build(),
        );
        let block = first_block(r#loop, 0);
        let variable = block.argument(0).expect("the block was made with one argument").into();
        (block, variable)
    }

    /// A loop that runs once and then as often as its end says; returns its block, still without its end.
    pub(super) fn repeat(&self) -> BlockRef<'c, 'm> {
        let (round, onwards) = (Region::new(), Region::new());
        round.append_block(Block::new(&[]));
        let next = onwards.append_block(Block::new(&[]));
        next.append_operation(scf::r#yield(self.context, &[], self.location).into());
        let builder = scf::WhileOperation::builder(self.context, self.location);
        let r#loop =
            self.push(builder.results(&[]).inits(&[]).before(round).after(onwards).build());
        first_block(r#loop, 0)
    }

    /// Ends a round of such a loop: another one follows where the condition holds.
    pub(super) fn end_round(&self, again: Value<'c, 'm>) {
        self.push(scf::condition(self.context, again, &[], self.location));
    }

    /// Ends the arm of a choice or a round of a loop.
    pub(super) fn end(&self) {
        self.push(scf::r#yield(self.context, &[], self.location));
    }

    /// Continues in another block.
    pub(super) fn at(&self, block: BlockRef<'c, 'm>) -> Builder<'c, 'm> {
        Builder { block, ..*self }
    }

    fn segments(&self, operation: impl Into<Operation<'c>>, sizes: &[usize]) -> Operation<'c> {
        let mut operation = operation.into();
        let sizes: Vec<i32> = sizes.iter().map(|&n| n as i32).collect();
        let sizes = DenseI32ArrayAttribute::new(self.context, &sizes);
        operation.set_inherent_attribute("operandSegmentSizes", sizes.into());
        operation
    }
}

/// How a loop compares its variable with its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoopCompare {
    Signed,
    Unsigned,
}

fn first_block<'c, 'm>(operation: OperationRef<'c, 'm>, region: usize) -> BlockRef<'c, 'm> {
    operation
        .region(region)
        .ok()
        .and_then(|region| region.first_block())
        .expect("the region was made with one block")
}
